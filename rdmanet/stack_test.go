package rdmanet

import (
	"context"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/racedetector"
)

// moves reports whether call, in a goroutine of its own after grow, moves the stack.
func moves(grow, call func()) (moved bool) {
	done := make(chan bool)
	go func() {
		var local byte
		grow()
		before := uintptr(unsafe.Pointer(&local))
		call()
		done <- uintptr(unsafe.Pointer(&local)) != before
	}()
	return <-done
}

// TestStackOfCalls: a call for which room was made does not move the stack.
func TestStackOfCalls(t *testing.T) {
	if racedetector.Enabled {
		t.Skip("frames are larger under the race detector")
	}
	onSoftware(t) // calls of another device may need more
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
		// The collector halves a stack of which less than a quarter is used, so one try of many tells.
		moved := true
		for try := 0; moved && try < 50; try++ {
			var err error
			moved = moves(c.grow, func() { err = c.call() })
			require.NoError(t, err, c.name)
		}
		require.False(t, moved, c.name)
	}
}

// TestCallsMakeRoom: calls begin by making room.
func TestCallsMakeRoom(t *testing.T) {
	nothing := func() {}
	var none context.Context
	for _, c := range []struct {
		name       string
		grow, call func()
	}{
		{"Write", growCallStack, func() { _, _ = new(Conn).Write(nil) }},
		{"Read", growCallStack, func() { _, _ = new(Conn).Read(nil) }},
		{"DialContext", growDialStack, func() {
			defer func() { _ = recover() }()
			_, _ = new(Dialer).DialContext(none, "rdma", "") // panics at once
		}},
	} {
		// Neither moves the stack while the runtime gives new goroutines larger ones; a collection between
		// the two may change that.
		differ := 0
		for range 50 {
			if moves(nothing, c.grow) != moves(nothing, c.call) {
				differ++
			}
		}
		require.Less(t, differ, 25, c.name)
	}
}
