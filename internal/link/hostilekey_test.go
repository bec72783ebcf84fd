package link

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// TestHostileKey: a peer announces a ring that its device opens to nobody, under a key of nothing,
// or at an address that the key is not for. Whoever believes it loses the lane to that peer, and no
// other.
func TestHostileKey(t *testing.T) {
	for name, spoil := range map[string]func(r *lane.Ring){
		"Key":     func(r *lane.Ring) { r.RKey ^= 1 << 31 },
		"Address": func(r *lane.Ring) { r.Addr += 1 << 40 },
	} {
		begin := func(b *bed, role lane.Role) *meeting {
			m := &meeting{bed: b, p: newWirePeer(b.t, role, wireConfig{device: b.l.cfg.CM.Device})}
			if role == lane.RoleDialer { // in OPEN
				m.p.dial(b.l.Addr())
				s := m.p.place()
				spoil(&s.own)
				m.p.opens++
				m.p.say(lane.Record{Kind: lane.KindOpen, Stream: s.id, Ring: s.own, Opens: m.p.opens, Port: s.port})
				m.s, m.victim = &s, m.accept()
				m.closeLater()
				return m
			}
			dialled := b.dialBehind(b.ctx(), m.p.listen()) // in PLACES
			m.p.request()
			m.p.accept()
			m.p.hear()
			s := wireStream{id: 1}
			m.p.ownRing(&s)
			spoil(&s.own)
			m.p.say(lane.Record{Kind: lane.KindPlaces, Stream: 1, Count: 1, Ring: s.own, Port: wirePorts + 1})
			m.dialled(dialled)
			return m
		}
		later := func(b *bed, role lane.Role) *meeting { // in RING
			m := b.meet(role, wireConfig{})
			r := m.s.own
			spoil(&r)
			m.p.say(lane.Record{Kind: lane.KindRing, Stream: m.s.id, Ring: r})
			require.Equal(b.t, m.s.id, m.p.heardRecord(lane.KindMoved).Stream)
			return m
		}
		for where, meet := range map[string]func(*bed, lane.Role) *meeting{"Begin": begin, "Ring": later} {
			t.Run(name+where, func(t *testing.T) {
				eachPeer(t, func(t *testing.T, cfg Config, role lane.Role) {
					b := newBed(t, cfg)
					bystander, beside := b.stranger()
					m := meet(b, role)
					within(t, "a stream to memory that is not there", func() {
						_, err := m.victim.Write([]byte("hello"))
						if err == nil {
							_, err = m.victim.Read(make([]byte, 1))
						}
						require.ErrorIs(t, err, syscall.ECONNRESET)
						require.ErrorIs(t, err, verbs.ErrPeerGone)
						<-m.victim.e.done
					})
					say(t, bystander, beside)
					say(t, beside, bystander)
					client, server := b.pair()
					say(t, client, server)
				})
			})
		}
	}
}
