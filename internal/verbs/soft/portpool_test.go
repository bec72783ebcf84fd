//go:build linux && (amd64 || arm64)

package soft

import (
	"net/netip"
	"testing"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/stretchr/testify/require"
)

// all counts the ports that are idle.
func (p *portPool) all() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ports)
}

// TestPortsAreUsedAgain dials one after the other: each connection has a port that none of
// the minIdlePorts before it had, and none is claimed any more after a while.
func TestPortsAreUsedAgain(t *testing.T) {
	noLeaks(t)
	noLines(t)
	idlePorts.late.expire()
	require.True(t, until(func() bool { return idlePorts.all() == 0 }))
	l := listenAt(t, "127.0.0.1:0", 4, verbs.CMOptions{})
	last := map[netip.AddrPort]int{}
	again := 0
	for round := range 4 * minIdlePorts {
		d, a := linePair(t, l)
		local := d.LocalAddr()
		require.Equal(t, local, a.RemoteAddr())
		if before, ok := last[local]; ok {
			again++
			require.GreaterOrEqual(t, round-before, minIdlePorts)
		}
		last[local] = round
		endBoth(t, d, a)
	}
	require.Greater(t, again, minIdlePorts)
	for addr := range last {
		taken, err := nameTaken(dialerName(soft0.name, addr))
		require.NoError(t, err)
		if taken {
			return
		}
	}
	require.Fail(t, "no port is kept")
}

func TestPortPoolIsBounded(t *testing.T) {
	noLeaks(t)
	var p portPool
	p.late.after = time.Hour
	ip := netip.MustParseAddr("127.0.0.1")
	for range maxIdlePorts + 3 {
		fd, addr, err := bindEphemeral(soft0.name, ip, netip.AddrPort{})
		require.NoError(t, err)
		p.put(soft0, addr, fd)
	}
	require.Equal(t, maxIdlePorts, p.all())
	require.Nil(t, p.take(soft0, netip.MustParseAddr("127.0.0.2"), netip.AddrPort{}))
	oldest, next := p.ports[0], p.ports[1]
	require.Same(t, next, p.take(soft0, ip, oldest.addr), "it is the address that is dialled")
	require.Same(t, oldest, p.take(soft0, ip, netip.AddrPort{}))
	for _, e := range []*idlePort{next, oldest} {
		p.put(soft0, e.addr, e.fd)
	}
	p.late.expire()
	require.True(t, until(func() bool { return p.all() == 0 }), "they are not given back")
}

func TestNameProbe(t *testing.T) {
	noLeaks(t)
	fd, addr, err := bindEphemeral(soft0.name, netip.MustParseAddr("127.0.0.1"), netip.AddrPort{})
	require.NoError(t, err)
	defer closeFDs([]int{fd})
	var p nameProbe
	for _, c := range []struct {
		name string
		want bool
	}{{dialerName(soft0.name, addr), true}, {"@rdmanet/" + testDevice(t) + "/free", false}, {dialerName(soft0.name, addr), true}, {"@rdmanet/" + testDevice(t) + "/free", false}} {
		taken, err := p.taken(c.name)
		require.NoError(t, err)
		require.Equal(t, c.want, taken)
	}
	p.close()
	taken, err := p.taken(dialerName(soft0.name, addr))
	require.NoError(t, err)
	require.True(t, taken)
}
