package link

import (
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPorts: no port is given twice before it comes back, those of other hosts do not matter,
// that of the listener is not, and all others are found.
func TestPorts(t *testing.T) {
	var p ports
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	require.True(t, p.take(a, firstPort+7))
	require.False(t, p.take(a, firstPort+7))
	require.True(t, p.take(b, firstPort+7))
	const listener = firstPort + 40
	seen := map[uint16]bool{firstPort + 7: true, listener: true}
	for n := 1; ; n = n%100 + 1 {
		first, count := p.alloc(a, listener, n)
		if count == 0 {
			break
		}
		require.LessOrEqual(t, count, n)
		for i := range count {
			port := first + uint16(i)
			require.False(t, seen[port], "%d is given twice", port)
			require.GreaterOrEqual(t, int(port), firstPort)
			require.Less(t, int(port), firstPort+numPorts)
			seen[port] = true
		}
	}
	require.Len(t, seen, numPorts)
	_, count := p.alloc(b, 0, 10)
	require.Positive(t, count)
	p.free(a, firstPort+100, 3)
	p.hosts[a].next = 0 // not between those
	first, count := p.alloc(a, listener, 10)
	require.Equal(t, []int{firstPort + 100, 3}, []int{int(first), count})
	p.free(a, firstPort, numPorts)
	require.Len(t, p.hosts, 1)
}

// TestClientsAreToldApart: streams of several dialers of one host have addresses of their own
// at the listener, which are those that the dialers see, and all ports come back.
func TestClientsAreToldApart(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		dialers := []*Links{b.links, b.anotherLinks(), b.anotherLinks()}
		seen := map[string]bool{}
		var ends []*Stream
		for i := range 60 {
			client, err := dialers[i%len(dialers)].Dial(b.ctx(), Target{Dst: b.l.Addr()})
			require.NoError(t, err)
			server := b.accept()
			addr := server.RemoteAddr().String()
			require.Equal(t, client.LocalAddr().String(), addr)
			require.False(t, seen[addr], "%s has two clients", addr)
			if seen[addr] = true; i%5 == 0 { // a live stream keeps its port, whoever has closed it
				require.NoError(t, client.Close())
			} else {
				ends = append(ends, client)
			}
			if ends = append(ends, server); i%5 == 1 { // the listener's end first
				k := len(ends)
				ends[k-1], ends[k-2] = ends[k-2], ends[k-1]
			}
		}
		for _, s := range ends {
			require.NoError(t, s.Close())
		}
		for _, links := range dialers {
			require.NoError(t, links.Close())
		}
		require.Eventually(t, func() bool {
			b.l.clients.mu.Lock()
			defer b.l.clients.mu.Unlock()
			return len(b.l.clients.hosts) == 0
		}, patience, time.Millisecond, "ports are left")
	})
}

// TestClientsHaveOtherPorts: no client has the address of the listener.
func TestClientsHaveOtherPorts(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		own := b.l.Addr()
		if own.Port() < firstPort {
			t.Skip("the system gives other ports than listeners give their clients")
		}
		b.l.clients.mu.Lock()
		b.l.clients.of(own.Addr()).next = own.Port() - firstPort
		b.l.clients.mu.Unlock()
		client, server := b.pair()
		require.NotEqual(t, own.String(), client.LocalAddr().String())
		say(t, client, server)
	})
}

// TestPortsUsedUp: where the ports of a client address are used up, places that other dialers from there
// have in store come back for the dials that wait. If none are left the dials get the next that are free.
// The log says once that there was a shortage, which is none of memory.
func TestPortsUsedUp(t *testing.T) {
	logs := logsOf(t)
	b := newBed(t, Config{Places: 8, Shrink: time.Hour}) // nothing is asked for again by a timer
	beside := &bed{t, b.l, b.anotherLinks()}
	beside.pair()
	_, server := b.pair()
	stores := 0
	require.Eventually(t, func() bool { // no more are granted
		b.l.mu.Lock()
		defer b.l.mu.Unlock()
		stores = 0
		for s := range b.l.backlog.all {
			if s.coming > 0 || s.stored == 0 {
				return false
			}
			stores += s.stored
		}
		return true
	}, patience, time.Millisecond)
	host, rest := server.e.listener.ports.host, []uint16(nil)
	for i := range uint16(numPorts) {
		if port := firstPort + i; b.l.clients.take(host, port) {
			rest = append(rest, port)
		}
	}
	within(t, "dials with the places of others", func() {
		for range stores {
			b.pair()
		}
	})

	const dials = 3
	ended := make(chan dialled, dials) // in any order
	for range dials {
		d := b.dialBehind(b.ctx(), b.l.Addr())
		go func() { ended <- <-d }()
	}
	lacks := func() bool {
		b.l.mu.Lock()
		defer b.l.mu.Unlock()
		return server.e.listener.share.denied
	}
	for range dials {
		require.Eventually(t, lacks, patience, time.Millisecond)
		b.l.clients.free(host, rest[0], 1)
		rest = rest[1:]
		server.e.lookAtMemory() // as the timer has it
		within(t, "a dial that waits for a port", func() {
			d := <-ended
			require.NoError(t, d.err)
			b.accept()
			t.Cleanup(func() { _ = d.s.Close() })
		})
	}
	said := func() int { return strings.Count(logs.String(), "no port left") }
	require.Eventually(t, func() bool { return said() > 0 }, patience, time.Millisecond)
	require.Equal(t, 1, said(), logs.String())
	require.Zero(t, server.e.stats().Refusals)
}

// TestPortShortageIsNewsOnce: it is one shortage until an eighth of the ports have come back.
func TestPortShortageIsNewsOnce(t *testing.T) {
	var p ports
	host := netip.MustParseAddr("10.0.0.1")
	require.False(t, p.usedUp(host), "all have come back")
	for i := range numPorts {
		require.True(t, p.take(host, firstPort+uint16(i)))
	}
	require.True(t, p.usedUp(host))
	require.False(t, p.usedUp(host))
	p.free(host, firstPort, numPorts/8-1)
	require.False(t, p.usedUp(host))
	p.free(host, firstPort+numPorts/8-1, 1)
	require.True(t, p.usedUp(host))
}

// TestBoundPort: a dialer that has bound a port has it at the listener as well, unless a live
// stream of its host has it there.
func TestBoundPort(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		first, second := b.pair()
		host := second.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		port := func() uint16 { // that is free in the system, and no place's, now and when more are granted
			for {
				l, err := Listen(b.links.cfg, testAddr())
				require.NoError(t, err)
				require.NoError(t, l.Close())
				b.l.clients.mu.Lock()
				h := b.l.clients.of(host)
				_, used := h.used[l.Addr().Port()]
				h.next = (l.Addr().Port() - firstPort + numPorts/2) % numPorts
				b.l.clients.mu.Unlock()
				if !used {
					return l.Addr().Port()
				}
			}
		}
		for _, taken := range []bool{false, true} {
			from := netip.AddrPortFrom(b.l.Addr().Addr(), port())
			if taken {
				require.True(t, b.l.clients.take(host, from.Port()))
			}
			s, err := b.links.Dial(b.ctx(), Target{Src: from, Dst: b.l.Addr()})
			require.NoError(t, err)
			defer s.Close()
			require.Equal(t, from.String(), s.LocalAddr().String())
			if !taken {
				other := b.accept()
				defer other.Close()
				require.Equal(t, from.String(), other.RemoteAddr().String())
				say(t, s, other)
				again := &stream{port: from.Port(), re: new(redial)} // it is dialled again, and was that of the port before
				again.re.home = again.re
				for _, again := range []*stream{nil, again, nil} {
					_, err := b.links.dialFor(b.ctx(), Target{Src: from, Dst: b.l.Addr()}, b.links.cfg.logger(), again)
					require.ErrorIs(t, err, syscall.EADDRINUSE)
				}
				continue
			}
			within(t, "a stream whose port another has", func() {
				_, err := s.Read(make([]byte, 1))
				require.ErrorIs(t, err, syscall.ECONNRESET)
			})
		}
		say(t, first, second)
	})
}
