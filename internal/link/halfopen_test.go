package link

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// TestHalfOpenTenThousand: ten thousand ask for a lane and say nothing behind it. No more of them
// than maxBringUps have one at a time, and who asks in the midst of them has its turn soon.
func TestHalfOpenTenThousand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const crowd, waiting = 10_000, cmBacklog // the others wait at their dialers
		b, closed := &bringUps{}, make(chan struct{})
		defer close(closed)
		var evicted []*atomic.Int32
		asked := 0
		ask := func(n int) {
			_, left := come(t, b, closed, n)
			evicted = append(evicted, left)
			asked += n
		}
		for ask(maxBringUps + waiting); asked < crowd; {
			late := make(chan struct{})
			timer := time.AfterFunc(2*time.Second, func() { close(late) })
			require.NoError(t, b.begin(unless(late)), "no turn in time after %d", asked)
			timer.Stop()
			b.end(&arrival{}) // it has spoken
			synctest.Wait()
			require.LessOrEqual(t, b.taken, maxBringUps)
			require.LessOrEqual(t, len(b.silent), maxBringUps)
			ask(min(waiting-len(b.waiting), crowd-asked))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, b.waiting)
		all := int32(0)
		for _, n := range evicted {
			all += n.Load()
		}
		require.EqualValues(t, crowd-maxBringUps, all, "nobody waits behind the last")
	})
}

// TestHalfOpenCrowd: hundreds ask for a lane and say nothing, and leave after a while. What the
// listener holds for them is bounded, honest dialers get in among them, and nothing is left.
func TestHalfOpenCrowd(t *testing.T) {
	mostlyWaits(t)
	const held = maxBringUps + 110 // dialers that are there at once
	crowd, every := 600, 150
	if testing.Short() {
		crowd, every = 320, 160
	}
	b := newBed(t, Config{HandshakeTimeout: time.Hour}) // so that all that go give way, or leave
	var there []*wirePeer
	for i := range crowd {
		p := newWirePeer(t, lane.RoleDialer, wireConfig{device: b.l.cfg.CM.Device})
		p.connect(b.l.Addr())
		if there = append(there, p); len(there) > held {
			there[0].close()
			there = there[1:]
		}
		if i%every == every-1 {
			within(t, "an honest dialer among them", func() {
				client, server := b.separatePair()
				say(t, client, server)
				require.NoError(t, client.Close())
				require.NoError(t, server.Close())
			})
			require.LessOrEqual(t, b.l.standing(), maxBringUps+crowd/every)
		}
	}
	for _, p := range there {
		p.close()
	}
	require.Positive(t, b.l.Requests().Evicted+b.l.Requests().Failed)
	require.Eventually(t, func() bool { return b.l.standing() == 0 }, patience, time.Millisecond, "lanes are left")
}

// TestHalfOpenStay: a dialer that says nothing keeps its lane where nobody needs its place, though
// others come and go beside it for longer than one that is in the way may stay.
func TestHalfOpenStay(t *testing.T) {
	b := newBed(t, Config{HandshakeTimeout: time.Hour})
	p := newWirePeer(t, lane.RoleDialer, wireConfig{device: b.l.cfg.CM.Device})
	p.dial(b.l.Addr())
	for began := time.Now(); time.Since(began) < 2*silentTick*silentTicks; {
		client, server := b.separatePair()
		say(t, client, server)
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
	}
	require.Equal(t, Requests{}, b.l.Requests())
	s := p.open() // and is served when it speaks at last
	server := b.accept()
	p.write(s, []byte("a"))
	within(t, "Read", func() {
		_, err := server.Read(make([]byte, 1))
		require.NoError(t, err)
	})
	require.NoError(t, server.Close())

	left := newWirePeer(t, lane.RoleDialer, wireConfig{device: b.l.cfg.CM.Device})
	left.dial(b.l.Addr())
	left.vanish()
	require.Eventually(t, func() bool { return b.l.Requests() == Requests{Failed: 1} }, patience, time.Millisecond, "one that left is counted")
}
