package main

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTextForPeople(t *testing.T) {
	d := roce()
	d.Ports[0].LID = 7
	h := fakeHost(limited("65536", "unlimited", "2048"), d)
	var out bytes.Buffer
	require.NoError(t, all(t, h).print(&out))
	golden(t, "testdata/report.txt", out.Bytes())
}

func TestVerdict(t *testing.T) {
	broken := func(h host, device string) host {
		h.echo = func(_ context.Context, on string, _ netip.Addr) (outcome, error) {
			if on == device || device == "" {
				return outcome{}, errors.New("broken")
			}
			return outcome{}, nil
		}
		return h
	}
	for want, h := range map[string]host{
		"RDMA works here, on rxe0.": roceHost(),
		"The software device works here, between the processes of this host; there is no RDMA device.":                   fakeHost(plain),
		"The software device works here, between the processes of this host. One check failed: see above what fixes it.": broken(roceHost(), "rxe0"),
		"RDMA works here, on rxe0. One check failed: see above what fixes it.":                                           broken(roceHost(), "soft0"),
		"RDMA does not work here. 2 checks failed: see above what fixes them.":                                           broken(roceHost(), ""),
		"RDMA does not work here.": {goos: "plan9"},
	} {
		assert.Equal(t, want, all(t, h).verdict())
	}
}
