package link

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/link/hello"
	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// stuff writes until the peer, which takes nothing, has room no more: a Write has waited for it in vain, and
// was not too late to look.
func stuff(t *testing.T, s *Stream) {
	t.Helper()
	var err error
	within(t, "a Write with a deadline", func() {
		for waited := false; err == nil || errors.Is(err, os.ErrDeadlineExceeded) && !waited; {
			before := s.Status().Stalls
			require.NoError(t, s.SetWriteDeadline(time.Now().Add(20*time.Millisecond)))
			_, err = s.Write(make([]byte, wireRing))
			waited = s.Status().Stalls > before
		}
	})
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, s.SetWriteDeadline(time.Time{}))
}

// TestHostileNoCredit: a peer takes in what it is sent and never gives room back. Write keeps its
// deadline, and another stream of the lane goes on.
func TestHostileNoCredit(t *testing.T) {
	eachPeer(t, func(t *testing.T, cfg Config, role lane.Role) {
		m := newBed(t, cfg).wirePair(role, wireConfig{})
		starved := m.ours
		stuff(t, starved)
		m.another(2)
		m.conversation()
		stuff(t, starved)
		within(t, "Close", func() { require.NoError(t, starved.Close()) })
		m.p.vanish()
		within(t, "the end of the lane", func() { <-starved.e.done })
	})
}

// TestHostileNoSlots: a peer gives no receive back. The whole lane waits for it: all calls keep
// their deadlines, Close returns, and another lane does not notice.
func TestHostileNoSlots(t *testing.T) {
	eachPeer(t, func(t *testing.T, cfg Config, role lane.Role) {
		b := newBed(t, cfg)
		other, otherEnd := b.separatePair()
		m := b.wirePair(role, wireConfig{silent: true})
		stuff(t, m.ours)
		require.NoError(t, m.ours.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
		within(t, "a Read with a deadline", func() {
			_, err := m.ours.Read(make([]byte, 1))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		})
		say(t, other, otherEnd)
		within(t, "Close", func() { require.NoError(t, m.ours.Close()) })
		m.p.vanish()
		within(t, "the end of the lane", func() { <-m.ours.e.done })
	})
}

// TestHostileNoReceives: a peer announces receives that it has not posted, and has the other end's
// device try for ever, or not. Either way a dial ends when it should, and others are served.
func TestHostileNoReceives(t *testing.T) {
	eachPeer(t, func(t *testing.T, cfg Config, role lane.Role) {
		for name, rnr := range map[string]uint8{"ForEver": 7, "Once": 1} {
			t.Run(name, func(t *testing.T) {
				b := newBed(t, cfg)
				p := newWirePeer(t, role, wireConfig{device: b.l.cfg.CM.Device, receives: -1, rnr: rnr})
				if role == lane.RoleDialer {
					p.dial(b.l.Addr())
					p.record(lane.Record{Kind: lane.KindWant, Count: 1}, nil) // PLACES cannot come
				} else {
					ctx, cancel := context.WithCancel(b.ctx())
					defer cancel()
					done := b.dialBehind(ctx, p.listen())
					p.request()
					p.accept() // WANT cannot come
					if rnr == 7 {
						cancel()
						require.ErrorIs(t, (<-done).err, context.Canceled)
					}
				}
				if rnr < 7 {
					p.cutOff()
				}
				client, server := b.pair()
				say(t, client, server)
				within(t, "Close", func() { require.NoError(t, b.l.Close()) })
			})
		}
	})
}

// TestHostileVanish: a peer is gone without a word, whatever the other end does meanwhile.
func TestHostileVanish(t *testing.T) {
	gone := func(t *testing.T, s *Stream, err error) {
		t.Helper()
		requireDead(t, s, err)
		require.ErrorIs(t, err, verbs.ErrPeerGone)
	}
	eachPeer(t, func(t *testing.T, cfg Config, role lane.Role) {
		t.Run("BeforeRead", func(t *testing.T) {
			m := newBed(t, cfg).wirePair(role, wireConfig{})
			m.p.write(m.s, []byte("last words"))
			require.Eventually(t, func() bool {
				m.ours.e.mu.Lock()
				defer m.ours.e.mu.Unlock()
				return m.ours.st.Receiver().Buffered() == 10
			}, patience, time.Millisecond)
			m.p.vanish()
			got := make([]byte, 10)
			_, err := io.ReadFull(m.ours, got)
			require.NoError(t, err)
			require.Equal(t, "last words", string(got))
			_, err = m.ours.Read(got)
			gone(t, m.ours, err)
			_, err = m.ours.Write(got)
			gone(t, m.ours, err)
		})
		for name, call := range map[string]func(s *Stream) error{
			"WhileReading": func(s *Stream) error { _, err := s.Read(make([]byte, 1)); return err },
			"WhileWriting": func(s *Stream) error { _, err := s.Write(make([]byte, 1)); return err },
		} {
			t.Run(name, func(t *testing.T) {
				m := newBed(t, cfg).wirePair(role, wireConfig{})
				stuff(t, m.ours)
				done := make(chan error, 1)
				go func() { done <- call(m.ours) }()
				m.p.vanish()
				within(t, "a call whose peer has gone", func() { gone(t, m.ours, <-done) })
			})
		}
		t.Run("Closed", func(t *testing.T) {
			m := newBed(t, cfg).wirePair(role, wireConfig{})
			stuff(t, m.ours)
			require.NoError(t, m.ours.Close())
			m.p.vanish()
			within(t, "the end of the lane", func() { <-m.ours.e.done })
		})
	})
}

// TestHostileBytesChange: a peer changes bytes that it has announced. What Read has returned stays.
func TestHostileBytesChange(t *testing.T) {
	eachPeer(t, func(t *testing.T, cfg Config, role lane.Role) {
		m := newBed(t, cfg).wirePair(role, wireConfig{})
		m.p.write(m.s, []byte("first"))
		got := make([]byte, 5)
		_, err := io.ReadFull(m.ours, got)
		require.NoError(t, err)
		m.p.post(verbs.SendWR{
			Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline, Inline: []byte("XXXXX"), RemoteAddr: m.s.to.Addr, RKey: m.s.to.RKey,
		})
		m.p.write(m.s, []byte("again"))
		next := make([]byte, 5)
		_, err = io.ReadFull(m.ours, next)
		require.NoError(t, err)
		require.Equal(t, "again", string(next))
		require.Equal(t, "first", string(got))
	})
}

// TestHostileFirstWords: what no end of a lane says first is refused, at either end, and whoever
// comes next is served.
func TestHostileFirstWords(t *testing.T) {
	le := binary.LittleEndian
	put16 := func(at int, v uint16) func(b []byte) []byte {
		return func(b []byte) []byte { le.PutUint16(b[at:], v); return b }
	}
	put32 := func(at int, v uint32) func(b []byte) []byte {
		return func(b []byte) []byte { le.PutUint32(b[at:], v); return b }
	}
	put64 := func(at int, v uint64) func(b []byte) []byte {
		return func(b []byte) []byte { le.PutUint64(b[at:], v); return b }
	}
	for _, l := range []struct {
		name   string
		who    int
		want   error
		change func(b []byte) []byte
	}{
		{"Nothing", byEither, hello.ErrMalformed, func([]byte) []byte { return nil }},
		{"Short", byEither, hello.ErrMalformed, func(b []byte) []byte { return b[:30] }},
		{"Zeros", byEither, hello.ErrMalformed, func(b []byte) []byte { clear(b); return b }},
		{"Version", byEither, cm.ErrVersion, func(b []byte) []byte { b[4] = 2; return b }},
		{"Length", byEither, hello.ErrMalformed, func(b []byte) []byte { b[5] = 47; return b }},
		{"NoStreams", byEither, hello.ErrMalformed, put16(6, 0)},
		{"HighStreams", byEither, hello.ErrMalformed, put16(6, uint16(lane.MaxStream)+1)},
		{"Feature", byEither, hello.ErrMalformed, func(b []byte) []byte { b[8] |= 2; return b }},
		{"ChecksumsUnknown", byEither, hello.ErrMalformed, func(b []byte) []byte { b[8] |= 8; return b }},
		{"Doorbells", byEither, hello.ErrMalformed, func(b []byte) []byte { b[8] ^= 1; return b }},
		{"FewReceives", byEither, hello.ErrMalformed, put32(12, lane.MinDepth-1)},
		{"ManyReceives", byEither, hello.ErrMalformed, put32(12, 1<<31)},
		{"RecordsBeyondMemory", byEither, hello.ErrMalformed, put64(16, 1<<64-100)},
		{"OddPlaces", byEither, hello.ErrMalformed, put32(28, 5)},
		{"ManyPlaces", byEither, hello.ErrMalformed, put32(28, 1<<31)},
		{"NoLanes", byEither, hello.ErrMalformed, put16(36, 0)},
		{"ManyLanes", byEither, hello.ErrMalformed, put16(36, MaxLanes+1)},
		{"Reserved", byEither, hello.ErrMalformed, put16(38, 1)},
		{"NoLink", byEither, hello.ErrMalformed, put64(40, 0)},
		{"Behind", byEither, hello.ErrMalformed, func(b []byte) []byte { return append(b, 1) }},
		{"MoreStreams", byListener, hello.ErrMalformed, put16(6, uint16(defaultStreams)+1)},
		{"OtherEpoch", byListener, hello.ErrMalformed, func(b []byte) []byte { b[32]++; return b }},
		{"OtherLink", byListener, hello.ErrMalformed, func(b []byte) []byte { b[40]++; return b }},
	} {
		t.Run(l.name, func(t *testing.T) {
			eachPeer(t, func(t *testing.T, cfg Config, role lane.Role) {
				if l.who&by(role) == 0 {
					return
				}
				b := newBed(t, cfg)
				wc := wireConfig{device: b.l.cfg.CM.Device, hello: l.change}
				p := newWirePeer(t, role, wc)
				if role == lane.RoleDialer {
					var no *cm.RefusedError
					ev := p.ask(b.l.Addr())
					require.Equal(t, cm.Rejected, ev.Type, "%v", ev)
					if l.want == cm.ErrVersion {
						require.ErrorAs(t, ev.Err, &no)
						require.Equal(t, cm.RefusedVersion, no.Code)
						require.EqualError(t, no, `the peer refuses: no common protocol version, it speaks version 1, this end 1: "update the older one"`)
					}
					b.l.mu.Lock()
					require.Empty(t, b.l.lanes)
					b.l.mu.Unlock()
				} else {
					dialled := b.dialBehind(b.ctx(), p.listen())
					p.request()
					p.makeQP()
					require.NoError(t, p.id.Accept(p.param()))
					within(t, "a dial that was answered so", func() { require.ErrorIs(t, (<-dialled).err, l.want) })
				}
				client, server := b.pair()
				say(t, client, server)
			})
		})
	}
}

// TestHostileSilence: a listener that answers and grants nothing keeps a dial for as long as that
// likes to wait, and no longer.
func TestHostileSilence(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		p := newWirePeer(t, lane.RoleListener, wireConfig{device: b.l.cfg.CM.Device})
		at := p.listen()
		ctx, cancel := context.WithCancel(b.ctx())
		done := b.dialBehind(ctx, at)
		p.request()
		p.accept()
		m := p.hear()
		require.Equal(t, lane.KindWant, m.record.Kind)
		client, server := b.pair()
		say(t, client, server)
		cancel()
		within(t, "a dial that was given up", func() { require.ErrorIs(t, (<-done).err, context.Canceled) })
	})
}

// TestHostileRandom: a peer says what comes to its mind, some of it nearly right. Nothing panics or
// hangs, and all of the lane goes when the peer has gone.
func TestHostileRandom(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	eachPeer(t, func(t *testing.T, cfg Config, role lane.Role) {
		b := newBed(t, cfg)
		other, otherEnd := b.separatePair()
		for range rounds {
			seed := rand.Uint64()
			m := b.on(t).wirePair(role, wireConfig{})
			ours := m.ours
			ended := make(chan struct{}, 2)
			for _, call := range []func(b []byte) (int, error){ours.Read, ours.Write} {
				go func() {
					for buf := make([]byte, 100); ; {
						if _, err := call(buf); err != nil {
							ended <- struct{}{}
							return
						}
					}
				}()
			}
			m.babble(rand.New(rand.NewPCG(seed, 0)))
			_ = m.p.id.Disconnect() // unless the other end has
			within(t, "the end of the lane", func() {
				<-ended
				<-ended
				_ = ours.Close()
				<-ours.e.done
			})
			if t.Failed() {
				t.Fatalf("the seed was %d", seed)
			}
		}
		say(t, other, otherEnd)
	})
}

// babble says up to fifty things.
func (m *wirePair) babble(r *rand.Rand) {
	id := func() lane.ID {
		return lane.ID([]int{int(m.s.id), 0, 2, wireStreams, 1 + r.IntN(wireStreams), int(lane.MaxStream)}[r.IntN(6)])
	}
	for range 1 + r.IntN(50) {
		imm := lane.Doorbell{Type: lane.Type(1 + r.IntN(3)), Stream: id(), N: uint32(1 + r.IntN(300))}.Imm()
		switch r.IntN(6) {
		case 0:
			imm = r.Uint32()
		case 1, 2, 3:
			b := make([]byte, lane.RecordLen)
			le := binary.LittleEndian
			b[0], b[1] = 1, byte(r.IntN(18))
			le.PutUint16(b[2:], uint16(id()))
			le.PutUint32(b[4:], m.p.epoch)
			le.PutUint32(b[8:], m.p.said)
			for _, at := range []int{12, 14, 16, 24, 28, 32, 40, 48, 50} {
				if r.IntN(3) == 0 {
					b[at] = byte(r.IntN(4))
				}
			}
			if r.IntN(2) == 0 {
				le.PutUint64(b[16:], m.s.own.Addr)
				le.PutUint32(b[24:], m.s.own.RKey)
				le.PutUint32(b[28:], wireRing)
			}
			imm = lane.Doorbell{Type: lane.TypeControl}.Imm()
			if !m.p.try(m.p.records+uint64(m.p.said%m.p.places)*lane.RecordLen, b, imm) {
				return
			}
			m.p.said++
			continue
		}
		if !m.p.try(m.p.records, nil, imm) {
			return
		}
	}
}
