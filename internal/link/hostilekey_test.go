package link

import (
	"context"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// TestHostileKey: a peer announces a ring under a key of nothing, or at an address that the key is
// not for, with a stream's begin or later. Who believes it loses the lane to that peer, and no other.
func TestHostileKey(t *testing.T) {
	for name, spoil := range map[string]func(r *lane.Ring){
		"Key":     func(r *lane.Ring) { r.RKey ^= 1 << 31 },
		"Address": func(r *lane.Ring) { r.Addr += 1 << 40 },
	} {
		for where, connect := range map[string]func(*bed, lane.Role) *wirePair{
			"Begin": func(b *bed, role lane.Role) *wirePair { // which no ACCEPTED may answer any more
				m := &wirePair{bed: b, p: newWirePeer(b.t, role, wireConfig{device: b.l.cfg.CM.Device, ring: spoil})}
				if role == lane.RoleDialer {
					m.p.dial(b.l.Addr())
					m.p.beginOpen()
					m.ours = m.accept()
					m.closeLater()
					return m
				}
				dialled := b.dialBehind(context.Background(), m.p.listen())
				m.p.request()
				m.p.accept()
				m.p.grant(1)
				within(b.t, "a dial", func() { m.dialled(dialled) })
				return m
			},
			"Ring": func(b *bed, role lane.Role) *wirePair {
				m := b.wirePair(role, wireConfig{})
				r := m.s.own
				spoil(&r)
				m.p.say(lane.Record{Kind: lane.KindRing, Stream: m.s.id, Ring: r})
				require.Equal(b.t, m.s.id, m.p.heardRecord(lane.KindMoved).Stream)
				return m
			},
		} {
			t.Run(name+where, func(t *testing.T) {
				eachPeer(t, func(t *testing.T, cfg Config, role lane.Role) {
					b := newBed(t, cfg)
					other, otherEnd := b.separatePair()
					m := connect(b, role)
					within(t, "a stream to memory that is not there", func() {
						_, err := m.ours.Write([]byte("hello"))
						if err == nil {
							_, err = m.ours.Read(make([]byte, 1))
						}
						require.ErrorIs(t, err, syscall.ECONNRESET)
						require.ErrorIs(t, err, verbs.ErrPeerGone)
						_ = m.ours.Close() // see TestHostileVerbs
						<-m.ours.e.done
					})
					within(t, "streams beside it", func() {
						say(t, other, otherEnd)
						say(t, otherEnd, other)
						client, server := b.pair()
						say(t, client, server)
					})
				})
			})
		}
	}
}
