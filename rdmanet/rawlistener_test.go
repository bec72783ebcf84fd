//go:build linux

package rdmanet

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
)

// TestRawListener has a dialer that finds a foreign server behind the address.
func TestRawListener(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(c *net.UnixConn)
		want error
	}{
		"hangs up":             {func(c *net.UnixConn) {}, syscall.ECONNRESET},
		"answers garbage":      {func(c *net.UnixConn) { _, _ = c.Write([]byte("SSH-2.0-OpenSSH")) }, ErrProtocol},
		"answers nothing":      {func(c *net.UnixConn) { _, _ = io.Copy(io.Discard, c) }, os.ErrDeadlineExceeded},
		"answers half a reply": {func(c *net.UnixConn) { _, _ = c.Write([]byte{2, 1, 0}) }, ErrProtocol},
		"sends descriptors": {func(c *net.UnixConn) {
			_, _, _ = c.WriteMsgUnix([]byte{2, 1}, syscall.UnixRights(0, 0, 0), nil)
		}, ErrProtocol},
		"sends too many descriptors": {func(c *net.UnixConn) {
			_, _, _ = c.WriteMsgUnix([]byte{2, 1}, syscall.UnixRights(make([]int, 100)...), nil)
		}, ErrProtocol},
		"speaks another version": {func(c *net.UnixConn) { _, _ = c.Write([]byte{3, 9, 5, 0, 0, 0, 0, 0}) }, ErrProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: freePort(t)}
			l, err := net.ListenUnix("unixpacket", socketName(at))
			require.NoError(t, err)
			defer l.Close()
			var served sync.WaitGroup
			served.Go(func() {
				for { // who is hung up on dials again: another may listen there
					u, err := l.AcceptUnix()
					if err != nil {
						return
					}
					// The request, or what fits of it.
					_, _, _, _, _ = u.ReadMsgUnix(make([]byte, 1), nil)
					c.do(u)
					_ = u.Close()
				}
			})
			files := len(leaktest.OpenFiles())
			d := Dialer{Device: "soft0", Timeout: patience}
			if c.want == os.ErrDeadlineExceeded { //nolint:errorlint // not wrapped here
				d.Timeout = soon / 2
			}
			conn, err := d.dial(context.Background(), "rdma", at.String())
			requireDialError(t, dialled{conn, err}, c.want)
			require.NoError(t, l.Close()) // it may not even have come there in its time
			served.Wait()
			require.LessOrEqual(t, len(leaktest.OpenFiles()), files)
		})
	}
}

// freePort is a port on which nobody listens.
func freePort(t testing.TB) int {
	t.Helper()
	l := flavour{}.newListener(t)
	require.NoError(t, l.Close())
	return l.addr.Port
}
