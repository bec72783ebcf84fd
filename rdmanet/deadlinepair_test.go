package rdmanet

import (
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDeadlinesOfBothDirections: of two SetDeadlines at once one is the last for both
// directions: none comes in between when another has set the first of its two.
func TestDeadlinesOfBothDirections(t *testing.T) {
	client, server := pair(t)
	_, err := server.Write([]byte{1}) // for Peek
	require.NoError(t, err)
	// expired reports whether the deadline has passed, which is to be that of both.
	expired := func() bool {
		_, readErr := client.Peek(1)
		_, writeErr := client.Write([]byte{1})
		read, write := errors.Is(readErr, os.ErrDeadlineExceeded), errors.Is(writeErr, os.ErrDeadlineExceeded)
		require.Equal(t, read, write, "Read says %v, Write %v", readErr, writeErr)
		if !write {
			readFull(t, server, 1)
		}
		return write
	}
	past := time.Now().Add(-time.Hour)

	client.stream.deadlines.Lock() // as a SetDeadline that is at it
	unlock := sync.OnceFunc(client.stream.deadlines.Unlock)
	defer unlock()
	done := make(chan error, 1)
	go func() { done <- client.SetDeadline(past) }()
	select {
	case <-done:
		t.Fatal("a SetDeadline has not waited for another")
	case <-time.After(20 * time.Millisecond):
	}
	require.False(t, expired(), "it has set its deadlines without waiting for another")
	unlock()
	within(t, patience, "SetDeadline", func() { require.NoError(t, <-done) })
	require.True(t, expired())

	for range 300 {
		var both sync.WaitGroup
		for _, at := range []time.Time{past, {}} {
			both.Go(func() { _ = client.SetDeadline(at) })
		}
		both.Wait()
		expired()
	}
}
