package rdmanet

import (
	"io"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestManyAtOnce dials 64 connections at once, moves data both ways on all of them at
// once, over several lanes, and compares the hashes of what was sent and of what arrived.
func TestManyAtOnce(t *testing.T) {
	// On fewer processors a link within a host has one lane.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(4, runtime.GOMAXPROCS(0))))
	const conns = 64
	size := int64(scale(640 << 10))
	eachFlavour(t, func(t *testing.T, fl flavour) {
		l := fl.newListener(t)
		accepted := make(chan *Conn, conns)
		var all sync.WaitGroup
		all.Go(func() {
			for range conns {
				s, err := l.AcceptConn()
				if !assert.NoError(t, err) {
					return
				}
				accepted <- s
			}
		})
		clients := make([]*Conn, conns)
		for i := range clients {
			all.Go(func() {
				d := <-fl.dialBehind(l.addr.AddrPort())
				if assert.NoError(t, d.err) {
					clients[i] = d.conn
				}
			})
		}
		all.Wait()
		require.False(t, t.Failed())
		servers := map[string]*Conn{}
		for range conns {
			s := <-accepted
			servers[s.RemoteAddr().String()] = s
		}

		within(t, lasting, "the streams", func() {
			for i, c := range clients {
				s := servers[c.LocalAddr().String()]
				if !assert.NotNil(t, s) {
					return
				}
				for j, ends := range [2][2]*Conn{{c, s}, {s, c}} {
					sent, arrived := make(chan RemoteSum, 1), make(chan RemoteSum, 1)
					go func() { sent <- send(ends[0], uint64(2*i+j), size) }()
					go func() { arrived <- sum(ends[1]) }()
					all.Go(func() {
						want := <-sent
						assert.Equal(t, size, want.N)
						assert.Equal(t, want, <-arrived)
					})
				}
			}
			all.Wait()
		})
		for _, c := range clients {
			requireClosed(t, c)
			s := servers[c.LocalAddr().String()]
			_, err := s.Read(make([]byte, 1))
			require.Equal(t, io.EOF, err)
			requireClosed(t, s)
		}
	})
}
