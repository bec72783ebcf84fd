package rdmanet

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHandOverStorm replaces a listener twenty times under clients that dial, write and want
// the echo, some of which have closed for writing by then. Nobody is lost.
func TestHandOverStorm(t *testing.T) {
	onSoftware(t)
	lc := ListenConfig{ReusePort: true, HandshakeTimeout: lasting, Logger: quiet}
	var served sync.WaitGroup
	serve := func(l *Listener) {
		for {
			c, err := l.AcceptConn()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if !assert.NoError(t, err) {
				return
			}
			served.Go(func() {
				defer c.Close()
				_, err := io.Copy(c, c)
				assert.NoError(t, err)
			})
		}
	}
	listen := func(address string) *Listener {
		l, err := lc.listen(context.Background(), "rdma", address)
		require.NoError(t, err)
		served.Go(func() { serve(l) })
		return l
	}
	l := listen(loopbackAddr)
	address := l.Addr().String()
	var stop atomic.Bool
	var clients sync.WaitGroup
	var echoes atomic.Int64
	for k := range 8 {
		clients.Go(func() {
			d := Dialer{Timeout: lasting, Logger: quiet}
			for i := 0; !stop.Load(); i++ {
				if !assert.NoError(t, echoThrough(&d, address, 1<<(i%14), (i+k)%3 == 0)) {
					return
				}
				echoes.Add(1)
			}
		})
	}
	for range 20 {
		next := listen(address)
		before := echoes.Load()
		require.NoError(t, l.Close())
		l = next
		require.Eventually(t, func() bool { return echoes.Load() > before+8 || t.Failed() }, lasting, time.Millisecond)
	}
	stop.Store(true)
	within(t, lasting, "the clients", clients.Wait)
	require.NoError(t, l.Close())
	within(t, lasting, "the servers", served.Wait)
	t.Logf("%d echoes", echoes.Load())
}

// echoThrough dials, writes n bytes and reads them back.
func echoThrough(d *Dialer, address string, n int, half bool) error {
	nc, err := d.Dial("rdma", address)
	if err != nil {
		return err
	}
	c := nc.(*Conn)
	defer c.Close()
	if _, err := c.Write(make([]byte, n)); err != nil {
		return err
	}
	if half {
		if err := c.CloseWrite(); err != nil {
			return err
		}
	}
	_, err = io.ReadFull(c, make([]byte, n))
	return err
}
