package rdmanet

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
)

// TestShortageIsNotStale has a shortage begin and end while nobody is in Accept, whether
// anybody waits for its end or not: the Accept that follows knows nothing of it.
func TestShortageIsNotStale(t *testing.T) {
	eachDevice(t, func(t *testing.T, fl flavour) {
		l := fl.newListener(t)
		l.event(&cm.Event{Type: cm.ConnectError, ID: l.id, Err: os.NewSyscallError("accept4", syscall.EMFILE)})
		require.EqualValues(t, 1, l.Stats().Shortages)
		require.NoError(t, l.SetDeadline(time.Now().Add(time.Millisecond)))
		_, err := l.Accept()
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, "nobody is there")
		require.NoError(t, l.SetDeadline(time.Time{}))
		client := begun(func() error {
			c, err := fl.dialer.dial(context.Background(), "rdma", l.Addr().String())
			if err == nil {
				err = c.Close()
			}
			return err
		})
		c, err := l.AcceptConn()
		require.NoError(t, err, "all is well")
		requireClosed(t, c)
		require.NoError(t, <-client)
	})
}
