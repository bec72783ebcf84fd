package rdmanet

import (
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHostileTCP has TCP clients that do what they want at a listener on a network of
// TCP: whoever comes after them, over RDMA or TCP, is accepted as if they were not there.
func TestHostileTCP(t *testing.T) {
	onTCPPorts(t)
	const clients = 1000
	for _, g := range []struct {
		name string
		do   func(c net.Conn)
	}{
		{"say nothing", func(net.Conn) {}},
		{"send garbage", func(c net.Conn) { _, _ = c.Write([]byte("\x16\x03\x01\x02\x00RDMA\x00\xff")) }},
		{"reset", func(c net.Conn) { reset(c) }},
	} {
		t.Run(g.name, func(t *testing.T) {
			kinds := tcpKinds()
			kinds[0].dialer.RequireRDMA = true // also when the machine is busy
			l := kinds[0].newListener(t)
			accepted := make(chan net.Conn, clients)
			go func() {
				defer close(accepted)
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					accepted <- c
				}
			}()
			var theirs []net.Conn
			defer func() {
				for _, c := range theirs {
					_ = c.Close()
				}
			}()
			for range clients {
				c, err := net.Dial("tcp", l.Addr().String())
				require.NoError(t, err)
				theirs = append(theirs, c)
				g.do(c)
				s := <-accepted
				require.IsType(t, (*net.TCPConn)(nil), s)
				theirs = append(theirs, s)
			}
			var took []time.Duration
			for _, b := range []overBoth{kinds[0], kinds[3]} {
				for range 10 {
					began := time.Now()
					c, err := b.dialer.Dial("tcp", l.Addr().String())
					require.NoError(t, err)
					s := <-accepted
					took = append(took, time.Since(began))
					requireKind(t, b.overRDMA(), c, s)
					require.Equal(t, c.LocalAddr().String(), s.RemoteAddr().String())
					require.NoError(t, c.Close())
					require.NoError(t, s.Close())
				}
			}
			slices.Sort(took)
			promise(t, "the dial in the middle", took[len(took)/2], soon/4)
			require.NoError(t, l.Close())
			for range accepted {
			}
		})
	}
}

// TestCrowdOfTCP has more TCP clients than the kernel lets wait, and nobody who accepts
// them: RDMA clients are still accepted, by who asks for them.
func TestCrowdOfTCP(t *testing.T) {
	onTCPPorts(t)
	b := tcpKinds()[0]
	b.dialer.RequireRDMA = true // also when the machine is busy
	l := b.newListener(t)
	for range 100 {
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		defer c.Close()
	}
	c, err := b.dialer.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	requireKind(t, true, c)
	s, err := l.AcceptConn()
	require.NoError(t, err)
	defer s.Close()

	// And an Accept prefers neither kind: of hundred and one clients it finds the one
	// over RDMA soon.
	d, err := b.dialer.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer d.Close()
	require.Eventually(t, func() bool { return l.Stats().Pending == 1 }, patience, time.Millisecond)
	for n := 1; ; n++ {
		s, err := l.Accept()
		require.NoError(t, err)
		defer s.Close()
		if _, rdma := s.(*Conn); rdma {
			t.Logf("it was number %d", n)
			break
		}
		require.Less(t, n, 100)
	}
}
