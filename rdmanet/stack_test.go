package rdmanet

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/racedetector"
)

// TestStackOfCalls: a call for which room was made does not move the stack.
func TestStackOfCalls(t *testing.T) {
	if racedetector.Enabled {
		t.Skip("frames are larger under the race detector")
	}
	client, server := pair(t)
	l := listening(t, &ListenConfig{})
	b := make([]byte, 64)
	for _, c := range []struct {
		name string
		grow func()
		call func() error
	}{
		{"Write and Read", growCallStack, func() error {
			if _, err := client.Write(b); err != nil {
				return err
			}
			_, err := server.Read(b)
			return err
		}},
		{"DialContext", growDialStack, func() error {
			c, err := Dial("rdma", l.Addr().String())
			if err == nil {
				t.Cleanup(func() { _ = c.Close() })
			}
			return err
		}},
	} {
		// The collector halves a stack of which a quarter is used when it looks, so one try of many tells.
		moved := true
		for try := 0; moved && try < 50; try++ {
			result := make(chan error)
			go func() {
				var local byte
				c.grow()
				before := uintptr(unsafe.Pointer(&local))
				err := c.call()
				moved = uintptr(unsafe.Pointer(&local)) != before
				result <- err
			}()
			require.NoError(t, <-result, c.name)
		}
		require.False(t, moved, c.name)
	}
}
