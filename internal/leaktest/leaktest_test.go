package leaktest

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNothingIsLeft(t *testing.T) {
	before := Take()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	assert.Empty(t, before.Wait(nil))
	assert.Empty(t, before.Wait(func() string { return "" }))
}

func TestGoroutineIsFound(t *testing.T) {
	before := Take()
	r, w := io.Pipe()
	go waitFor(r)
	assert.Contains(t, before.wait(0, 3, nil), "leaktest.waitFor")
	require.NoError(t, w.Close())
	assert.Empty(t, before.Wait(nil))
}

func waitFor(r io.Reader) { _, _ = io.Copy(io.Discard, r) }

func TestOtherLeaksAreToldWhenTheyStay(t *testing.T) {
	before := Take()
	calls := 0
	assert.Empty(t, before.Wait(func() string {
		if calls++; calls < 3 {
			return "rings\n"
		}
		return ""
	}))
	assert.Equal(t, 3, calls)
	assert.Equal(t, "rings\n", before.wait(0, 3, func() string { return "rings\n" }))
}
