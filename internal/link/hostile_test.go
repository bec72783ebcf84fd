package link

import (
	"encoding/binary"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring"
	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// Who tells a lie: a wirePeer that is the dialer, the listener, or either.
const (
	byDialer = 1 << iota
	byListener
	byEither = byDialer | byListener
)

func by(r lane.Role) int {
	if r == lane.RoleDialer {
		return byDialer
	}
	return byListener
}

// A lie is something that the protocol forbids and a peer does all the same.
type lie struct {
	name string
	who  int
	rule error
	tell func(m *wirePair)
}

// laneLies are about the lane.
func laneLies() []lie {
	imm := func(i uint32) func(*wirePair) { return func(m *wirePair) { m.p.imm(i) } }
	bell := func(d lane.Doorbell) func(*wirePair) { return imm(d.Imm()) }
	const own = lane.MaxStream // stands for the id of the liar's own stream
	rec := func(r lane.Record, f func(b []byte)) func(*wirePair) {
		return func(m *wirePair) {
			r := r
			if r.Stream == own {
				r.Stream = m.s.id
			}
			m.p.record(r, f)
		}
	}
	want := lane.Record{Kind: lane.KindWant, Count: 1}
	goAway := lane.Record{Kind: lane.KindGoAway, Stage: lane.StageFinal}
	some := lane.Ring{Addr: 1 << 20, RKey: 1, Size: wireRing}
	places := lane.Record{Kind: lane.KindPlaces, Stream: 9, Count: 1, Ring: some, Port: 9}
	le := binary.LittleEndian
	return []lie{
		{"Nothing", byEither, lane.RuleType, imm(0)},
		{"Reserved", byEither, lane.RuleReserved, imm(3<<30 | 2<<28 | 1)},
		{"CreditOfNothing", byEither, lane.RuleNothing, imm(2<<30 | 1<<16)},
		{"NoStream", byEither, lane.RuleStream, imm(1<<30 | 5)},
		{"HighStream", byEither, lane.RuleStream, bell(lane.Doorbell{Type: lane.TypeData, Stream: lane.MaxStream, N: 1})},
		{"NotOpen", byEither, lane.RuleNotOpen, bell(lane.Doorbell{Type: lane.TypeData, Stream: wireStreams - 1, N: 1})},
		{"Slots", byEither, lane.RuleReturn, bell(lane.Doorbell{Type: lane.TypeSlots, N: 60000})},
		{"ZeroRecord", byEither, lane.RuleVersion, rec(goAway, func(b []byte) { clear(b) })},
		{"Kind", byEither, lane.RuleKind, rec(goAway, func(b []byte) { b[1] = 99 })},
		{"Epoch", byEither, lane.RuleEpoch, rec(goAway, func(b []byte) { le.PutUint32(b[4:], le.Uint32(b[4:])+1) })},
		{"Number", byEither, lane.RuleNumber, rec(goAway, func(b []byte) { b[8]++ })},
		{"ReservedByte", byEither, lane.RuleReserved, rec(goAway, func(b []byte) { b[63] = 1 })},
		{"FieldOfAnother", byEither, lane.RuleReserved, rec(goAway, func(b []byte) { b[12] = 1 })},
		{"Sum", byEither, lane.RuleReserved, rec(lane.Record{Kind: lane.KindFIN, Stream: own, Sum: 1}, nil)},
		{"NoCode", byEither, lane.RuleCode, rec(lane.Record{Kind: lane.KindReset, Stream: own, Code: lane.CodeReset}, func(b []byte) { b[12] = 0 })},
		{"HighCode", byEither, lane.RuleCode, rec(lane.Record{Kind: lane.KindReset, Stream: own, Code: lane.CodeReset}, func(b []byte) { b[12] = 8 })},
		{"AbortOfNothing", byEither, lane.RuleCode, rec(lane.Record{Kind: lane.KindAbort, Code: 1}, func(b []byte) { b[12] = 0 })},
		{"AbortOfAStream", byEither, lane.RuleCode, rec(lane.Record{Kind: lane.KindAbort, Code: 1}, func(b []byte) { b[12] = byte(lane.RuleOverflow) })},
		{"AfterClose", byEither, lane.RuleNotOpen, func(m *wirePair) {
			m.p.say(lane.Record{Kind: lane.KindClose, Stream: m.s.id, Total: m.s.sent})
			m.p.heardRecord(lane.KindClose)
			m.p.imm(lane.Doorbell{Type: lane.TypeData, Stream: m.s.id, N: 1}.Imm())
		}},
		{"RingOfNoSize", byEither, lane.RuleRing, rec(lane.Record{Kind: lane.KindRing, Stream: own, Ring: some}, func(b []byte) { le.PutUint32(b[28:], 0) })},
		{"RingOfOddSize", byEither, lane.RuleRing, rec(lane.Record{Kind: lane.KindRing, Stream: own, Ring: some}, func(b []byte) { b[28] = 1 })},
		{"RingBeyondMemory", byEither, lane.RuleRing, rec(lane.Record{Kind: lane.KindRing, Stream: own, Ring: some}, func(b []byte) { le.PutUint64(b[16:], 1<<64-100) })},
		{"GoAwayWithoutStage", byEither, lane.RuleStage, rec(lane.Record{Kind: lane.KindGoAway, Stage: lane.StageFinal}, func(b []byte) { b[50] = 0 })},
		{"GoAwayOfTheFuture", byEither, lane.RuleStage, rec(lane.Record{Kind: lane.KindGoAway, Stage: lane.StageFinal}, func(b []byte) { b[50] = 9 })},

		{"DialerAccepts", byDialer, lane.RuleRole, rec(lane.Record{Kind: lane.KindAccepted, Stream: own, Count: 1}, nil)},
		{"DialerRefuses", byDialer, lane.RuleRole, rec(lane.Record{Kind: lane.KindRefused, Stream: own, Code: lane.CodeClosed}, nil)},
		{"DialerGrants", byDialer, lane.RuleRole, rec(places, nil)},
		{"DialerRecalls", byDialer, lane.RuleRole, rec(lane.Record{Kind: lane.KindRecall, Count: 1}, nil)},
		{"OpenTwice", byDialer, lane.RulePlace, func(m *wirePair) {
			m.p.record(lane.Record{Kind: lane.KindOpen, Stream: m.s.id, Ring: m.s.own, Opens: m.p.opens + 1, Port: m.s.port}, nil)
		}},
		{"OpenWithoutAPlace", byDialer, lane.RulePlace, func(m *wirePair) {
			m.p.record(lane.Record{Kind: lane.KindOpen, Stream: wireStreams - 1, Ring: m.s.own, Opens: m.p.opens + 1, Port: m.s.port}, nil)
		}},
		{"OpensCounted", byDialer, lane.RuleOpenNumber, func(m *wirePair) {
			s := m.p.place()
			m.p.record(lane.Record{Kind: lane.KindOpen, Stream: s.id, Ring: m.s.own, Opens: m.p.opens + 2, Port: s.port}, nil)
		}},
		{"WantOfNothing", byDialer, lane.RuleCount, rec(want, func(b []byte) { b[14] = 0 })},
		{"ReleaseOfAnOpen", byDialer, lane.RuleRelease, rec(lane.Record{Kind: lane.KindRelease, Stream: own}, nil)},
		{"ReleaseOfNone", byDialer, lane.RuleRelease, rec(lane.Record{Kind: lane.KindRelease, Stream: wireStreams - 1}, nil)},
		{"StoppedUnasked", byDialer, lane.RuleGoAway, rec(lane.Record{Kind: lane.KindGoAway, Stage: lane.StageStopped}, nil)},

		{"ListenerWants", byListener, lane.RuleRole, rec(want, nil)},
		{"ListenerOpens", byListener, lane.RuleRole, rec(lane.Record{Kind: lane.KindOpen, Stream: 9, Ring: some, Opens: 1, Port: 9}, nil)},
		{"ListenerReleases", byListener, lane.RuleRole, rec(lane.Record{Kind: lane.KindRelease, Stream: own}, nil)},
		{"GrantTwice", byListener, lane.RulePlace, rec(lane.Record{Kind: lane.KindPlaces, Stream: own, Count: 1, Ring: some, Port: 9}, nil)},
		{"GrantAcrossAnOpen", byListener, lane.RulePlace, rec(lane.Record{Kind: lane.KindPlaces, Stream: own, Count: 3, Ring: some, Port: 9}, nil)},
		{"GrantOfHighStreams", byListener, lane.RuleStream, rec(lane.Record{Kind: lane.KindPlaces, Stream: wireStreams - 1, Count: 3, Ring: some, Port: 9}, nil)},
		{"GrantOfNone", byListener, lane.RuleCount, rec(places, func(b []byte) { b[14] = 0 })},
		{"GrantWithoutPort", byListener, lane.RulePort, rec(places, func(b []byte) { b[48] = 0 })},
		{"GrantOfHighPorts", byListener, lane.RulePort, rec(places, func(b []byte) { b[14] = 2; le.PutUint16(b[48:], 65535) })},
		{"AcceptOfNone", byListener, lane.RuleNotOpen, rec(lane.Record{Kind: lane.KindAccepted, Stream: wireStreams - 1, Count: 1}, nil)},
		{"AcceptTwice", byListener, lane.RuleNotOpen, rec(lane.Record{Kind: lane.KindAccepted, Stream: own, Count: 1}, nil)},
		{"AcceptOfNoCount", byListener, lane.RuleCount, rec(lane.Record{Kind: lane.KindAccepted, Stream: own, Count: 1}, func(b []byte) { b[14] = 0 })},
		{"AcceptOfMany", byListener, lane.RuleCount, rec(lane.Record{Kind: lane.KindAccepted, Stream: own, Count: 1}, func(b []byte) { b[14], b[15] = 0xff, 0xff })},
		{"RecallOfNothing", byListener, lane.RuleCount, rec(lane.Record{Kind: lane.KindRecall, Count: 1}, func(b []byte) { b[14] = 0 })},
		{"FinalUnannounced", byListener, lane.RuleGoAway, rec(lane.Record{Kind: lane.KindGoAway, Stage: lane.StageFinal}, nil)},
		{"FinalOfMoreOpens", byListener, lane.RuleOpenNumber, func(m *wirePair) {
			m.p.say(lane.Record{Kind: lane.KindGoAway, Stage: lane.StageAnnounce})
			require.Equal(m.t, lane.StageStopped, m.p.heardRecord(lane.KindGoAway).Stage)
			m.p.record(lane.Record{Kind: lane.KindGoAway, Stage: lane.StageFinal, Opens: 1000}, nil)
		}},
		{"StoppedByTheListener", byListener, lane.RuleRole, rec(lane.Record{Kind: lane.KindGoAway, Stage: lane.StageStopped}, nil)},
		{"DataBeforeAccepted", byListener, lane.RuleNotOpen, func(m *wirePair) {
			dialled := m.dialBehind(m.ctx(), m.p.listener.LocalAddr())
			m.p.grant(2)
			require.Equal(m.t, lane.ID(2), m.p.heardRecord(lane.KindOpen).Stream)
			m.p.imm(lane.Doorbell{Type: lane.TypeData, Stream: 2, N: 1}.Imm())
			if d := <-dialled; d.err == nil {
				_ = d.s.Close()
			}
		}},
	}
}

// TestHostileLane: a peer lies about its lane. The link ends at once with an error that names the
// lie, the liar is told, and a link beside it does not notice.
func TestHostileLane(t *testing.T) {
	eachPeer(t, func(t *testing.T, cfg Config, role lane.Role) {
		b := newBed(t, cfg)
		other, otherEnd := b.separatePair()
		for _, l := range laneLies() {
			if l.who&by(role) == 0 {
				continue
			}
			t.Run(l.name, func(t *testing.T) {
				m := b.on(t).wirePair(role, wireConfig{})
				l.tell(m)
				within(t, "a link that was lied to", func() {
					if _, err := m.ours.Read(make([]byte, 1)); err != io.EOF { // its peer had closed it
						require.ErrorIs(t, err, syscall.ECONNABORTED)
						require.ErrorIs(t, err, ring.ErrProtocol)
						require.ErrorIs(t, err, l.rule)
						_, err = m.ours.Write(make([]byte, 1))
						require.ErrorIs(t, err, l.rule)
						require.ErrorContains(t, err, l.rule.Error())
					}
					m.told(l.rule, cfg.Receives > 0 || strings.HasPrefix(cfg.CM.Device, "late"))
					m.p.cutOff()
					<-m.ours.e.done
				})
				require.ErrorIs(t, m.ours.e.err, l.rule)
				say(t, other, otherEnd)
				say(t, otherEnd, other)
			})
		}
	})
}

// TestHostileAbort: a peer says that this end has lied, which it has not. That ends the liar's own
// link, as a reset.
func TestHostileAbort(t *testing.T) {
	eachPeer(t, func(t *testing.T, cfg Config, role lane.Role) {
		b := newBed(t, cfg)
		m := b.wirePair(role, wireConfig{})
		m.p.record(lane.Record{Kind: lane.KindAbort, Code: lane.Code(lane.RuleDepth)}, nil)
		within(t, "a link that was ended", func() {
			_, err := m.ours.Read(make([]byte, 1))
			require.ErrorIs(t, err, syscall.ECONNRESET)
			require.ErrorIs(t, err, lane.RuleDepth)
			require.NotErrorIs(t, err, ring.ErrProtocol, "the peer has not lied")
			require.ErrorContains(t, err, "the link has ended: the peer says that this end broke the protocol")
			<-m.ours.e.done
		})
		client, server := b.pair()
		say(t, client, server)
	})
}

// streamLies are about one stream. Neither end forgets what the lane has counted.
func streamLies() []lie {
	data := func(m *wirePair, n uint32) { m.p.imm(lane.Doorbell{Type: lane.TypeData, Stream: m.s.id, N: n}.Imm()) }
	total := func(k lane.Kind) func(m *wirePair) {
		return func(m *wirePair) { m.p.say(lane.Record{Kind: k, Stream: m.s.id, Total: m.s.sent + 12345}) }
	}
	return []lie{
		{"Overflow", byEither, lane.RuleOverflow, func(m *wirePair) { data(m, 1<<16) }},
		{"OverflowByOne", byEither, lane.RuleOverflow, func(m *wirePair) { data(m, m.s.to.Size+1) }},
		{"Credit", byEither, lane.RuleCredit, func(m *wirePair) {
			m.p.imm(lane.Doorbell{Type: lane.TypeCredit, Stream: m.s.id, N: 1}.Imm())
		}},
		{"CreditOfMore", byEither, lane.RuleCredit, func(m *wirePair) {
			_, err := m.ours.Write(make([]byte, 3*lane.Granule))
			require.NoError(m.t, err)
			m.p.read(m.s, 3*lane.Granule)
			m.p.imm(lane.Doorbell{Type: lane.TypeCredit, Stream: m.s.id, N: 4}.Imm())
		}},
		{"Move", byEither, lane.RuleMove, func(m *wirePair) { m.p.say(lane.Record{Kind: lane.KindMoved, Stream: m.s.id}) }},
		{"Total", byEither, lane.RuleTotal, total(lane.KindFIN)},
		{"TotalOfClose", byEither, lane.RuleTotal, total(lane.KindClose)},
		{"AfterFIN", byEither, lane.RuleAfterFIN, func(m *wirePair) {
			m.p.say(lane.Record{Kind: lane.KindFIN, Stream: m.s.id, Total: m.s.sent})
			data(m, 1)
		}},
		{"TwoFINs", byEither, lane.RuleAfterFIN, func(m *wirePair) {
			m.p.say(lane.Record{Kind: lane.KindFIN, Stream: m.s.id, Total: m.s.sent})
			m.p.say(lane.Record{Kind: lane.KindFIN, Stream: m.s.id, Total: m.s.sent})
		}},
	}
}

// TestHostileStream: a peer lies about one stream. That stream ends with an error that names the
// lie, and one beside it on the same lane goes on.
func TestHostileStream(t *testing.T) {
	mostlyWaits(t)
	eachPeer(t, func(t *testing.T, cfg Config, role lane.Role) {
		for _, l := range streamLies() {
			t.Run(l.name, func(t *testing.T) {
				m := newBed(t, cfg).wirePair(role, wireConfig{})
				lied, ours := m.s, m.ours
				m.another(2)
				beside, neighbour := m.s, m.ours
				require.Same(t, ours.e, neighbour.e)
				m.s, m.ours = lied, ours
				l.tell(m)
				within(t, "a stream that was lied to", func() {
					_, err := ours.Read(make([]byte, 1))
					if err == io.EOF { // FIN was no lie
						_, err = ours.Write(make([]byte, 1))
						for err == nil {
							_, err = ours.Write(make([]byte, 1))
						}
					}
					require.ErrorIs(t, err, syscall.ECONNABORTED)
					require.ErrorIs(t, err, l.rule)
				})
				r := m.p.heardRecord(lane.KindReset)
				require.Equal(t, lied.id, r.Stream)
				require.Equal(t, lane.CodeProtocol, r.Code)
				m.s, m.ours = beside, neighbour
				if l.name != "TotalOfClose" { // that was the peer's last record
					m.p.say(lane.Record{Kind: lane.KindReset, Stream: lied.id, Code: lane.CodeReset})
				}
				m.conversation()
			})
		}
	})
}

// TestHostileVerbs: a peer uses another verb, or memory that is none of its business. That ends its
// own link, and leaves others as they were.
func TestHostileVerbs(t *testing.T) {
	write := func(addr uint64, rkey uint32) verbs.SendWR {
		return verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline, Inline: make([]byte, 64), RemoteAddr: addr, RKey: rkey}
	}
	read := func(op verbs.WROpcode) func(m *wirePair, _ *Stream) verbs.SendWR {
		return func(m *wirePair, _ *Stream) verbs.SendWR {
			return verbs.SendWR{
				Opcode: op, RemoteAddr: m.s.to.Addr, RKey: m.s.to.RKey, CompareAdd: 1,
				SGList: []verbs.SGE{{Addr: m.p.mr.Addr() + wireScratch, Length: 8, LKey: m.p.mr.LKey()}},
			}
		}
	}
	for _, l := range []struct {
		name string
		wr   func(m *wirePair, other *Stream) verbs.SendWR
	}{
		{"BeforeTheRecords", func(m *wirePair, _ *Stream) verbs.SendWR { return write(m.p.records-64, m.p.rkey) }},
		{"AcrossTheRecords", func(m *wirePair, _ *Stream) verbs.SendWR {
			return write(m.p.records+uint64(m.ours.e.p.remoteMR.Len())-63, m.p.rkey)
		}},
		{"FarAway", func(m *wirePair, _ *Stream) verbs.SendWR { return write(m.p.records+1<<40, m.p.rkey) }},
		{"WrongKey", func(m *wirePair, _ *Stream) verbs.SendWR { return write(m.p.records, m.p.rkey^1<<31) }},
		{"RingOfAnother", func(_ *wirePair, other *Stream) verbs.SendWR {
			other.e.mu.Lock()
			defer other.e.mu.Unlock()
			r := other.st.Receiver().Ring()
			return write(r.Addr, r.RKey)
		}},
		{"Read", read(verbs.WRRDMARead)},
		{"FetchAndAdd", read(verbs.WRAtomicFetchAndAdd)},
		{"SendOfNothing", func(*wirePair, *Stream) verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline | verbs.SendSolicited, Inline: []byte{}}
		}},
		{"SendOfTooMuch", func(*wirePair, *Stream) verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline | verbs.SendSolicited, Inline: make([]byte, 5)}
		}},
	} {
		t.Run(l.name, func(t *testing.T) {
			eachPeer(t, func(t *testing.T, cfg Config, role lane.Role) {
				b := newBed(t, cfg)
				other, otherEnd := b.separatePair()
				say(t, other, otherEnd)
				m := b.wirePair(role, wireConfig{})
				wr := l.wr(m, otherEnd)
				if wr.SGList != nil && !m.p.mayRead(t, wr.Opcode) {
					return
				}
				wr.Flags |= verbs.SendSignaled
				m.p.post(wr)
				within(t, "a link whose peer does what it may not", func() {
					_, err := m.ours.Read(make([]byte, 1))
					require.Error(t, err)
					require.NotEqual(t, io.EOF, err)
					_, err = m.ours.Write(make([]byte, 1))
					require.Error(t, err)
					// Where no event says that the device has refused a request, the peer might be
					// out of reach, and the lane is kept until the program closes its streams.
					_ = m.ours.Close()
					<-m.ours.e.done
				})
				say(t, other, otherEnd)
				say(t, otherEnd, other)
			})
		})
	}
}
