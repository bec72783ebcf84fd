package rdmanet

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAddressesAsTCP dials every kind of local address, from every kind there is, as TCP
// does beside it: both reach the listener or neither does, and the ends have the same addresses.
func TestAddressesAsTCP(t *testing.T) {
	onSoftware(t)
	type ends struct{ dialer, listener string }
	host := func(a net.Addr) string { return a.(*net.TCPAddr).IP.String() }
	// connect tells the addresses of both ends, none if the dial has failed.
	connect := func(t *testing.T, l net.Listener, dial func(address string) (net.Conn, error), to string) (e ends, err error) {
		_, port, _ := net.SplitHostPort(l.Addr().String())
		c, err := dial(to + ":" + port)
		if err != nil {
			return e, err
		}
		defer c.Close()
		s, err := l.Accept()
		require.NoError(t, err)
		defer s.Close()
		require.Equal(t, c.LocalAddr().String(), s.RemoteAddr().String())
		require.Equal(t, c.RemoteAddr().String(), s.LocalAddr().String())
		return ends{host(c.LocalAddr()), host(s.LocalAddr())}, nil
	}
	tried, reached := 0, 0
	for _, at := range []string{"127.0.0.1:0", "127.0.0.5:0", "[::1]:0", "0.0.0.0:0", "[::]:0", ":0"} {
		for _, listenV := range []string{"", "4", "6"} {
			tcp, err := net.Listen("tcp"+listenV, at)
			rdma, rerr := Listen("rdma"+listenV, at)
			require.Equal(t, err == nil, rerr == nil, "listen on %s, version %q: %v, %v", at, listenV, err, rerr)
			if err != nil {
				continue
			}
			for _, to := range []string{"", "0.0.0.0", "[::]", "127.0.0.1", "127.0.0.5", "127.0.0.7", "[::1]", "[::ffff:127.0.0.1]", "localhost"} {
				for _, dialV := range []string{"", "4", "6"} {
					for _, from := range []string{"", "127.0.0.1", "127.0.0.6", "::1", "0.0.0.0", "::"} {
						var src net.Addr
						if from != "" {
							src = &net.TCPAddr{IP: net.ParseIP(from)}
						}
						want, err := connect(t, tcp, func(a string) (net.Conn, error) {
							return (&net.Dialer{LocalAddr: src, Timeout: lasting}).Dial("tcp"+dialV, a)
						}, to)
						got, rerr := connect(t, rdma, func(a string) (net.Conn, error) {
							return (&Dialer{LocalAddr: src, Timeout: lasting}).Dial("rdma"+dialV, a)
						}, to)
						what := []any{"listen on %s, version %q; dial %q, version %q, from %q: %v, %v", at, listenV, to, dialV, from, err, rerr}
						require.Equal(t, err == nil, rerr == nil, what...)
						require.Equal(t, want, got, what...)
						tried++
						if err == nil {
							reached++
						}
					}
				}
			}
			require.NoError(t, tcp.Close())
			require.NoError(t, rdma.Close())
		}
	}
	require.Greater(t, reached, tried/8, "of %d", tried)
}
