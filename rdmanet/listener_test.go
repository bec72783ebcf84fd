package rdmanet

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAcceptOfClosedQueue has an Accept that came past its look at Close and then
// finds everything ready at once: it must not take the closed queue's nothing for
// a connection.
func TestAcceptOfClosedQueue(t *testing.T) {
	l := newListener(networkAny, sizes{}, &ListenConfig{})
	close(l.queue)
	done := make(chan error, 1)
	go func() {
		c, err := l.AcceptConn()
		if c != nil {
			err = nil
		}
		done <- err
	}()
	// The Accept is past its first look, or will be: both must end well.
	time.AfterFunc(10*time.Millisecond, l.close)
	select {
	case err := <-done:
		require.ErrorIs(t, err, net.ErrClosed)
	case <-time.After(patience):
		t.Fatal("Accept hangs")
	}
}
