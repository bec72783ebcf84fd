package link

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// TestHostileByteAMinute: a peer gives back the least room that it may, once this end sleeps. A
// Write goes on as slowly, asleep, and still ends with its deadline; Close does not wait for it.
func TestHostileByteAMinute(t *testing.T) {
	const rests = 20
	eachPeer(t, func(t *testing.T, cfg Config, role lane.Role) {
		m := newBed(t, cfg).meet(role, wireConfig{})
		stuff(t, m.victim)
		takeIn := func(n int) { // and give no room back
			for n > 0 {
				if d := m.p.heard(); d.Type == lane.TypeData {
					n -= int(d.N)
				}
			}
			require.Zero(t, n)
		}
		takeIn(wireRing)
		type result struct {
			n   int
			err error
		}
		done := make(chan result, 1)
		write := func() {
			n, err := m.victim.Write(make([]byte, 1<<16))
			done <- result{n, err}
		}
		parks := func() uint64 { return m.victim.Status().Parks }
		before := parks()
		asleep := func() bool { return parks() > before }
		memory := m.victim.LaneStats().Memory
		go write()
		for range rests {
			require.Eventually(t, asleep, patience, time.Millisecond, "it does not sleep")
			before = parks()
			m.p.pace()
			m.p.imm(lane.Doorbell{Type: lane.TypeCredit, Stream: m.s.id, N: 1}.Imm())
			takeIn(lane.Granule)
		}
		require.LessOrEqual(t, m.victim.LaneStats().Memory, memory)
		require.NoError(t, m.victim.SetWriteDeadline(time.Now().Add(20*time.Millisecond)))
		within(t, "a Write with a deadline", func() {
			r := <-done
			require.ErrorIs(t, r.err, os.ErrDeadlineExceeded)
			require.Equal(t, rests*lane.Granule, r.n)
		})
		require.NoError(t, m.victim.SetWriteDeadline(time.Time{}))
		before = parks()
		go write()
		require.Eventually(t, asleep, patience, time.Millisecond)
		within(t, "Close", func() {
			require.NoError(t, m.victim.Close())
			require.ErrorIs(t, (<-done).err, net.ErrClosed)
		})
	})
}

// TestHostileFlood: a peer asks for signs of life as fast as it gets them. Calls keep their
// deadlines and return all the same.
func TestHostileFlood(t *testing.T) {
	eachPeer(t, func(t *testing.T, cfg Config, role lane.Role) {
		m := newBed(t, cfg).meet(role, wireConfig{})
		var pongs atomic.Uint32
		done := make(chan error, 1)
		go func() {
			done <- func() error {
				for round := 0; round < 5 || pongs.Load() < 500; round++ {
					if err := m.victim.SetReadDeadline(time.Now().Add(5 * time.Millisecond)); err != nil {
						return err
					}
					if _, err := m.victim.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
						return errors.Join(errors.New("a Read whose deadline has passed"), err)
					}
					if round < 5 {
						if _, err := m.victim.Write([]byte("hello")); err != nil {
							return err
						}
					}
				}
				return m.victim.Close()
			}()
		}()
		for began, token := time.Now(), uint64(1); ; token++ {
			select {
			case err := <-done:
				require.NoError(t, err)
				return
			default:
			}
			require.Less(t, time.Since(began), patience, "a call is caught")
			m.p.say(lane.Record{Kind: lane.KindPing, Total: token})
			for {
				if d := m.p.heard(); d.Type == lane.TypeControl && d.record.Kind == lane.KindPong {
					require.Equal(t, token, d.record.Total)
					break
				}
			}
			pongs.Add(1)
		}
	})
}
