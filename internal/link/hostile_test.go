package link

import (
	"encoding/binary"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/ring"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// forge posts a message that the machine of this end knows nothing of.
func forge(t *testing.T, e *laneEnd, w target) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if w.addr == 0 {
		w.addr, w.rkey = e.peer.records, e.peer.rkey
	}
	w.solicited = true
	e.post(&w)
}

// forged is a record as the next of e, with what f makes of it.
func forged(e *laneEnd, r lane.Record, f func(b []byte)) target {
	e.mu.Lock()
	defer e.mu.Unlock()
	last, err := lane.ParseRecord(e.record[:]) // that e has sent
	if err != nil {
		panic(err)
	}
	r.Epoch, r.Number = last.Epoch, last.Number+1
	b := make([]byte, lane.RecordLen)
	if err := r.Put(b); err != nil {
		panic(err)
	}
	if f != nil {
		f(b)
	}
	return target{
		addr: e.peer.records + uint64(r.Number&uint32(e.recordPlaces()-1))*lane.RecordLen, rkey: e.peer.rkey,
		imm: lane.Doorbell{Type: lane.TypeControl}.Imm(), inline: b,
	}
}

// TestHostileLane: a dialer lies about its lane. The link ends at both ends with an error that
// names the lie, and a link beside it does not notice.
func TestHostileLane(t *testing.T) {
	imm := func(i uint32) func(*Stream) target { return func(*Stream) target { return target{imm: i} } }
	bell := func(d lane.Doorbell) func(*Stream) target { return imm(d.Imm()) }
	rec := func(r lane.Record, f func(b []byte)) func(*Stream) target {
		return func(s *Stream) target {
			if r.Stream == 1<<13 {
				r.Stream = s.st.ID()
			}
			return forged(s.e, r, f)
		}
	}
	const own = lane.ID(1 << 13) // stands for the id of the liar's own stream
	lies := []struct {
		name string
		rule error
		lie  func(*Stream) target
	}{
		{"Nothing", lane.RuleType, imm(0)},
		{"Reserved", lane.RuleReserved, imm(3<<30 | 2<<28 | 1)},
		{"CreditOfNothing", lane.RuleNothing, imm(2<<30 | 1<<16)},
		{"NoStream", lane.RuleStream, imm(1<<30 | 5)},
		{"HighStream", lane.RuleStream, bell(lane.Doorbell{Type: lane.TypeData, Stream: lane.MaxStream, N: 1})},
		{"NotOpen", lane.RuleNotOpen, bell(lane.Doorbell{Type: lane.TypeData, Stream: 90, N: 1})},
		{"Slots", lane.RuleReturn, bell(lane.Doorbell{Type: lane.TypeSlots, N: 60000})},
		{"ZeroRecord", lane.RuleVersion, rec(lane.Record{Kind: lane.KindWant, Count: 1}, func(b []byte) { clear(b) })},
		{"Kind", lane.RuleKind, rec(lane.Record{Kind: lane.KindWant, Count: 1}, func(b []byte) { b[1] = 99 })},
		{"Epoch", lane.RuleEpoch, rec(lane.Record{Kind: lane.KindWant, Count: 1}, func(b []byte) {
			le := binary.LittleEndian
			le.PutUint32(b[4:], le.Uint32(b[4:])+1)
		})},
		{"Number", lane.RuleNumber, rec(lane.Record{Kind: lane.KindWant, Count: 1}, func(b []byte) { b[8]++ })},
		{"Role", lane.RuleRole, rec(lane.Record{Kind: lane.KindAccepted, Stream: own}, nil)},
		{"Place", lane.RulePlace, rec(lane.Record{Kind: lane.KindOpen, Stream: own, Ring: lane.Ring{Addr: 1 << 20, Size: 1024}, Opens: 9, Port: 1}, nil)},
		{"Release", lane.RuleRelease, rec(lane.Record{Kind: lane.KindRelease, Stream: own}, nil)},
		{"GoAway", lane.RuleGoAway, rec(lane.Record{Kind: lane.KindGoAway, Stage: lane.StageStopped}, nil)},
		{"AbortOfNothing", lane.RuleCode, rec(lane.Record{Kind: lane.KindAbort, Code: 1}, func(b []byte) { b[12] = 0 })},
		{"AbortOfAStream", lane.RuleCode, rec(lane.Record{Kind: lane.KindAbort, Code: 1}, func(b []byte) { b[12] = byte(lane.RuleOverflow) })},
		{"Sum", lane.RuleReserved, rec(lane.Record{Kind: lane.KindFIN, Stream: own, Sum: 1}, nil)},
		{"Pong", lane.RulePing, rec(lane.Record{Kind: lane.KindPong, Total: 7}, nil)},
	}
	eachFlavour(t, func(t *testing.T, cfg Config) {
		cfg.Streams = 100
		b := newBed(t, cfg)
		others := b.anotherLinks()
		bystander, err := others.Dial(b.ctx(), Target{Dst: b.l.Addr()})
		require.NoError(t, err)
		defer bystander.Close()
		beside := b.accept()
		defer beside.Close()
		for _, l := range lies {
			t.Run(l.name, func(t *testing.T) {
				client, server := b.pair()
				say(t, client, server)
				forge(t, client.e, l.lie(client))
				within(t, "a link that was lied to", func() {
					_, err := server.Read(make([]byte, 1))
					require.ErrorIs(t, err, syscall.ECONNABORTED)
					require.ErrorIs(t, err, ring.ErrProtocol)
					require.ErrorIs(t, err, l.rule)
					_, err = server.Write(make([]byte, 1))
					require.ErrorIs(t, err, l.rule)
					_, err = client.Read(make([]byte, 1))
					require.ErrorIs(t, err, syscall.ECONNRESET)
					require.ErrorIs(t, err, l.rule, "the liar is not told")
					require.NotErrorIs(t, err, ring.ErrProtocol, "the peer has not lied")
					_, err = client.Write(make([]byte, 1))
					require.ErrorIs(t, err, l.rule)
					require.ErrorContains(t, err, l.rule.Error())
					<-server.e.done
					<-client.e.done
				})
				say(t, bystander, beside)
				say(t, beside, bystander)
			})
		}
	})
}

// TestHostileAbort: a dialer says that the listener has lied, which it has not. That ends the
// liar's own link, as a reset, and the next dial makes another.
func TestHostileAbort(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		client, server := b.pair()
		say(t, client, server)
		forge(t, client.e, forged(client.e, lane.Record{Kind: lane.KindAbort, Code: lane.Code(lane.RuleDepth)}, nil))
		within(t, "a link that was ended", func() {
			_, err := server.Read(make([]byte, 1))
			require.ErrorIs(t, err, syscall.ECONNRESET)
			require.ErrorIs(t, err, lane.RuleDepth)
			_, err = client.Read(make([]byte, 1))
			require.Error(t, err)
			<-server.e.done
		})
		again, far := b.pair()
		say(t, again, far)
	})
}

// TestHostileStream: a dialer lies about one stream. That stream ends with the error that
// names the lie, and one beside it on the same lane does not notice.
func TestHostileStream(t *testing.T) {
	lies := []struct {
		name string
		rule error
		lie  func(*Stream) target
	}{
		{"Overflow", lane.RuleOverflow, func(s *Stream) target {
			return target{imm: lane.Doorbell{Type: lane.TypeData, Stream: s.st.ID(), N: 1 << 16}.Imm()}
		}},
		{"Credit", lane.RuleCredit, func(s *Stream) target {
			return target{imm: lane.Doorbell{Type: lane.TypeCredit, Stream: s.st.ID(), N: 1000}.Imm()}
		}},
		{"Move", lane.RuleMove, func(s *Stream) target {
			return forged(s.e, lane.Record{Kind: lane.KindMoved, Stream: s.st.ID()}, nil)
		}},
		{"Total", lane.RuleTotal, func(s *Stream) target {
			return forged(s.e, lane.Record{Kind: lane.KindFIN, Stream: s.st.ID(), Total: 12345}, nil)
		}},
	}
	eachFlavour(t, func(t *testing.T, cfg Config) {
		for _, l := range lies {
			t.Run(l.name, func(t *testing.T) {
				b := newBed(t, cfg)
				neighbour, beside := b.pair()
				client, server := b.pair()
				require.Same(t, neighbour.e, client.e)
				say(t, client, server)
				forge(t, client.e, l.lie(client))
				within(t, "a stream that was lied to", func() {
					_, err := server.Read(make([]byte, 1))
					require.ErrorIs(t, err, syscall.ECONNABORTED)
					require.ErrorIs(t, err, l.rule)
				})
				// What was forged has taken a receive, of which this end knows nothing: it goes on
				// for a while where there are many. A record has taken a number as well.
				if cfg.Receives == 0 && (l.name == "Overflow" || l.name == "Credit") {
					_, err := client.Read(make([]byte, 1))
					require.ErrorIs(t, err, syscall.ECONNRESET)
					for range 5 {
						say(t, neighbour, beside)
						say(t, beside, neighbour)
					}
				}
			})
		}
	})
}

// TestHostileMemory: a dialer writes where it may not. That takes its QP down, and the link
// with it at both ends.
func TestHostileMemory(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		client, server := b.pair()
		say(t, client, server)
		at := client.e.peer.records + uint64(server.e.p.remoteMR.Len())
		forge(t, client.e, target{addr: at, rkey: client.e.peer.rkey, imm: lane.Doorbell{Type: lane.TypeControl}.Imm(), inline: make([]byte, 64)})
		within(t, "a link whose dialer wrote elsewhere", func() {
			for _, s := range []*Stream{client, server} {
				_, err := s.Read(make([]byte, 1))
				require.ErrorIs(t, err, syscall.ECONNRESET)
			}
		})
	})
}

// TestHostileKey: what the keys of a link open. A dialer writes to the ring of a stream of another
// link, whose key it has guessed: that takes its own QP down, and the other link stays as it was.
func TestHostileKey(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		client, server := b.pair()
		say(t, client, server)
		other, err := b.anotherLinks().Dial(b.ctx(), Target{Dst: b.l.Addr()})
		require.NoError(t, err)
		defer other.Close()
		beside := b.accept()
		defer beside.Close()
		say(t, other, beside)
		other.e.mu.Lock()
		ring := other.st.Sender().Ring()
		other.e.mu.Unlock()
		forge(t, client.e, target{addr: ring.Addr, rkey: ring.RKey, imm: lane.Doorbell{Type: lane.TypeControl}.Imm(), inline: make([]byte, 64)})
		within(t, "a link whose dialer wrote to another's ring", func() {
			for _, s := range []*Stream{client, server} {
				_, err := s.Read(make([]byte, 1))
				require.ErrorIs(t, err, syscall.ECONNRESET)
			}
		})
		say(t, other, beside)
	})
}

// TestStrangers: who connects with another first word is refused, and costs nothing.
func TestStrangers(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		for _, first := range [][]byte{nil, []byte("GET / HTTP/1.1"), someHello.put()[:20], make([]byte, 56)} {
			events := make(chan *cm.Event, 4)
			id, err := newEventHandler(events).channel().CreateID(b.l.cfg.CM)
			require.NoError(t, err)
			require.NoError(t, id.Resolve(b.ctx(), Target{}.Src, b.l.Addr()))
			c, err := b.l.cfg.withDefaults()
			require.NoError(t, err)
			p, err := newEndpoint(id, &c)
			require.NoError(t, err)
			require.NoError(t, id.Connect(&cm.ConnParam{PrivateData: first}, 0))
			_, err = established(b.ctx(), events)
			require.Error(t, err)
			require.NoError(t, p.destroy())
			require.NoError(t, id.Close())
		}
		b.l.mu.Lock()
		require.Empty(t, b.l.lanes)
		b.l.mu.Unlock()
		client, server := b.pair()
		say(t, client, server)
	})
}
