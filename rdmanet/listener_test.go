package rdmanet

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
)

// TestListenerLosesItsDevice has the device removed under an Accept that waits.
func TestListenerLosesItsDevice(t *testing.T) {
	l := flavour{}.newListener(t)
	accepted := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		accepted <- err
	}()
	removed := &cm.DeviceRemovedError{Device: "soft0"}
	l.event(&cm.Event{Type: cm.DeviceRemoval, ID: l.id, Err: removed})
	select {
	case err := <-accepted:
		t.Fatalf("another device of the listener goes on, but Accept said %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	require.NoError(t, l.id.Close()) // as with the last device
	l.event(&cm.Event{Type: cm.DeviceRemoval, ID: l.id, Err: removed})
	within(t, patience, "Accept", func() {
		err := <-accepted
		require.ErrorIs(t, err, syscall.ENODEV)
		require.ErrorIs(t, err, cm.ErrDeviceRemoved)
		require.NotErrorIs(t, err, net.ErrClosed)
	})
}
