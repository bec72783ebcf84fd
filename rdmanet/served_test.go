package rdmanet

import (
	"context"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// eachDevice is eachFlavour for what depends on the device alone.
func eachDevice(t *testing.T, f func(t *testing.T, fl flavour)) {
	for _, fl := range flavours() {
		if fl.name == "default" || fl.name == "iwarp" {
			t.Run(fl.name, func(t *testing.T) { f(t, fl) })
		}
	}
}

// requireServedAmong is requireServed where connections that are over may come
// before. They cannot be told by their address: its port may have been used again.
func requireServedAmong(t testing.TB, fl flavour, l *Listener) {
	t.Helper()
	c, err := fl.dialer.dial(context.Background(), "rdma", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write([]byte("hello"))
	require.NoError(t, err)
	require.NoError(t, l.SetDeadline(time.Now().Add(patience)))
	defer func() { _ = l.SetDeadline(time.Time{}) }() // the next may be a while in coming
	for served := false; !served; {
		s, err := l.AcceptConn()
		require.NoError(t, err)
		b := make([]byte, 5)
		require.NoError(t, s.SetReadDeadline(time.Now().Add(patience)))
		_, err = io.ReadFull(s, b)
		served = err == nil
		if served {
			require.Equal(t, "hello", string(b))
		} else {
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		}
		requireClosed(t, s)
	}
}
