package cm

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// TestDetail: what is left of an error of this package where the address and the package are
// known says each thing once, however deep the errors are inside each other.
func TestDetail(t *testing.T) {
	at, boom := netip.MustParseAddrPort("10.0.0.1:80"), errors.New("boom")
	driver := &DriverError{Driver: "nic", Err: boom}
	private, err := (&Refusal{Version: 1, MinVersion: 1, Code: RefusedShutdown, Text: "bye"}).MarshalBinary()
	require.NoError(t, err)
	for _, tt := range []struct {
		err   error
		whole string
		left  string
	}{
		{driver, "nic: boom", "boom"},
		{&NoDriverError{Op: "bind", Addr: at}, "cm: cannot bind 10.0.0.1:80: this program has no RDMA driver", "this program has no RDMA driver"},
		{&NoDriverError{Op: "bind", Device: "x", Addr: at, Drivers: []*DriverError{driver, {Driver: "soft", Err: &ResolveError{What: "route", Addr: at, Err: boom}}}},
			`cm: cannot bind 10.0.0.1:80 on device "x": nic: boom; soft: boom`, "nic: boom; soft: boom"},
		{&ResolveError{What: "address", Addr: at, Err: driver}, "cm: resolving the address of 10.0.0.1:80: boom", "boom"},
		{&RejectedError{Addr: at, Reason: RejectTimeout}, "cm: connection to 10.0.0.1:80 rejected: timeout", "timeout"},
		{&RejectedError{Addr: at, Reason: RejectTimeout, Err: driver}, "cm: connection to 10.0.0.1:80 rejected: boom", "boom"},
		{&RejectedError{Addr: at, Reason: RejectConsumer, PrivateData: private, Err: boom}, `cm: connection to 10.0.0.1:80 rejected: the peer refuses: shutting down: "bye"`, `the peer refuses: shutting down: "bye"`},
		{&UnreachableError{Addr: at}, "cm: 10.0.0.1:80 is unreachable", "peer unreachable"},
		{&UnreachableError{Addr: at, Err: driver}, "cm: 10.0.0.1:80 is unreachable: boom", "boom"},
		{&ConnectionError{Addr: at}, "cm: connection with 10.0.0.1:80 failed", "the connection failed"},
		{&ConnectionError{Addr: at, Err: driver}, "cm: connection with 10.0.0.1:80 failed: boom", "boom"},
		{&DeviceRemovedError{Device: "x"}, `cm: device "x" was removed`, `device "x" was removed`},
		{&DeviceRemovedError{Device: "x", Err: driver}, `cm: device "x" was removed: boom`, `device "x" was removed: boom`},
		{&VersionError{1, 1, 2, 3}, "cm: no common protocol version: this end speaks 1, the peer 2 to 3 (update the older one)", "no common protocol version: this end speaks 1, the peer 2 to 3 (update the older one)"},
		{boom, "boom", "boom"},
	} {
		require.EqualError(t, tt.err, tt.whole)
		require.Equal(t, tt.left, detail(tt.err))
	}
}

func TestNoDriverNamesTheEnvironment(t *testing.T) {
	t.Setenv(deviceVar, "mlx5_9")
	err := &NoDriverError{Op: "resolve", Device: "mlx5_9", Drivers: []*DriverError{{Driver: "nic", Err: verbs.ErrNoDevice}}}
	require.True(t, strings.HasSuffix(err.Error(), "(RDMANET_DEVICE=mlx5_9)"), "%v", err)
	err.Device = "mlx5_8" // by an option
	require.NotContains(t, err.Error(), deviceVar)
	err.Device = ""
	require.NotContains(t, err.Error(), deviceVar)
}
