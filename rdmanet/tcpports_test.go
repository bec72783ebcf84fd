package rdmanet

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/faulty"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// iWARP has its ports from the system's TCP. On networks of TCP it is left out, with a reason:
// clients come, and servers are reached, by TCP or by another device.
func TestTCPPorts(t *testing.T) {
	onSoftware(t)
	failingIWARP.HaveTCPPorts(true)
	t.Cleanup(func() { failingIWARP.HaveTCPPorts(false) })
	serve := func(t *testing.T, lc *ListenConfig, network string) *Listener {
		t.Helper()
		l, err := lc.listen(context.Background(), network, loopbackAddr)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Close()) })
		return l
	}
	meet := func(t *testing.T, d *Dialer, l *Listener, network string, rdma bool) {
		t.Helper()
		c, err := d.Dial(network, l.Addr().String())
		require.NoError(t, err)
		requireKind(t, rdma, c)
		s, err := l.Accept()
		require.NoError(t, err)
		requireKind(t, rdma, s)
		require.NoError(t, c.Close())
		require.NoError(t, s.Close())
	}

	t.Run("the listener's only device", func(t *testing.T) {
		l := serve(t, &ListenConfig{Device: failingIWARP.Name(), Logger: quiet}, "tcp")
		require.NotNil(t, l.Fallback())
		require.Equal(t, FallbackNoDevice, l.Fallback().Reason)
		require.ErrorIs(t, l.Fallback(), verbs.ErrTCPPorts)
		require.ErrorContains(t, l.Fallback(), "use network rdma")
		meet(t, &Dialer{Device: "soft0-iwarp", Logger: quiet}, l, "tcp", false)
	})
	t.Run("RDMA is required", func(t *testing.T) {
		_, err := (&ListenConfig{Device: failingIWARP.Name(), RequireRDMA: true}).Listen(context.Background(), "tcp", loopbackAddr)
		require.ErrorIs(t, err, verbs.ErrTCPPorts)
	})
	t.Run("the dialer's only device", func(t *testing.T) {
		l := serve(t, &ListenConfig{Device: "soft0-iwarp"}, "tcp")
		var told *FallbackError
		d := &Dialer{Device: failingIWARP.Name(), Logger: quiet, OnFallback: func(e *FallbackError) { told = e }}
		meet(t, d, l, "tcp", false)
		require.NotNil(t, told)
		require.Equal(t, FallbackNoDevice, told.Reason)
		require.ErrorIs(t, told, verbs.ErrTCPPorts)
	})
	t.Run("one of several devices", func(t *testing.T) {
		var lines bytes.Buffer
		l := serve(t, &ListenConfig{Logger: slog.New(slog.NewTextHandler(&lines, nil))}, "tcp")
		require.Nil(t, l.Fallback())
		require.Contains(t, lines.String(), "device left out of a network of TCP")
		require.Contains(t, lines.String(), "iWARP has its ports from the system's TCP")
		meet(t, new(Dialer), l, "tcp", true)
	})
	t.Run("network rdma", func(t *testing.T) {
		l := serve(t, &ListenConfig{Device: failingIWARP.Name()}, "rdma")
		meet(t, &Dialer{Device: "soft0-iwarp"}, l, "rdma", true)
	})
}

// The connection manager chooses ports without a look at TCP's, of which iWARP takes one when it
// begins to listen: then Listen has it choose another, unless its caller named the port.
func TestListenPortOfTCP(t *testing.T) {
	onSoftware(t)
	for name, c := range map[string]struct {
		at    string
		taken int // so many times
		tries int
		want  error
	}{
		"chosen, and free at last": {"127.0.0.1:0", portTries - 1, portTries, nil},
		"chosen, and never free":   {"127.0.0.1:0", 2 * portTries, portTries, syscall.EADDRINUSE},
		"named":                    {"127.0.0.1:47123", 1, 1, syscall.EADDRINUSE},
	} {
		t.Run(name, func(t *testing.T) {
			tries := 0
			failingIWARP.OnAcquire(func(what string) error {
				if what == faulty.Listen {
					if tries++; tries <= c.taken {
						return fmt.Errorf("rdma_listen: %w", syscall.EADDRINUSE)
					}
				}
				return nil
			})
			defer failingIWARP.OnAcquire(nil)
			l, err := (&ListenConfig{Device: failingIWARP.Name()}).Listen(context.Background(), "rdma", c.at)
			require.Equal(t, c.tries, tries)
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
				return
			}
			require.NoError(t, err)
			require.NoError(t, l.Close())
		})
	}
}
