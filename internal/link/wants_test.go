package link

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// TestLaneWaiting: the first WANT is for the dials that are likely to go by the lane.
func TestLaneWaiting(t *testing.T) {
	for _, tt := range []struct {
		users, lanes int
		beside       bool
		port         uint16
		want         int
	}{
		{users: 7, lanes: 1, want: 7},
		{users: 7, lanes: 2, want: 4},
		{users: 8, lanes: 2, want: 4},
		{users: 1, lanes: 8, want: 1},
		{users: 0, lanes: 1, want: 1}, // the last has just left
		{users: 7, lanes: 1, beside: true, want: 1},
		{users: 7, lanes: 1, port: 7, want: 1},
	} {
		to := Target{Src: netip.AddrPortFrom(netip.Addr{}, tt.port)}
		k := &linkLane{l: new(Links), link: &link{target: to}, users: tt.users, beside: tt.beside}
		require.Equal(t, tt.want, k.waiting(tt.lanes), "%+v", tt)
	}
}

// TestWantsTogether: the first WANT of a lane is for all dials that have waited for it, and dials that come
// while places are asked for are told of by one more when some come.
func TestWantsTogether(t *testing.T) {
	const first, later = 3, 4
	eachFlavour(t, func(t *testing.T, cfg Config) {
		cfg.Lanes = 1
		b := newBed(t, cfg)
		p := newWirePeer(t, lane.RoleListener, wireConfig{device: b.l.cfg.CM.Device})
		at := p.listen()
		var dials []<-chan dialled
		begin := func(n int) {
			for range n {
				dials = append(dials, b.dialBehind(b.ctx(), at))
			}
		}
		begin(first)
		p.request()
		require.Eventually(t, func() bool {
			b.links.mu.Lock()
			defer b.links.mu.Unlock()
			return b.links.links[Target{Dst: at}].lanes[0].users == first
		}, patience, time.Millisecond, "dials do not wait for the lane")
		p.accept()
		m := p.hear()
		require.Equal(t, lane.KindWant, m.record.Kind)
		require.EqualValues(t, first, m.record.Count)

		p.grant(1)
		streams := []*wireStream{p.opened()}
		begin(later)
		require.Eventually(t, func() bool {
			all, _ := lanesAt(at)
			return len(all) == 1 && all[0].Waiting == first-1+later
		}, patience, time.Millisecond, "dials do not wait for a place")
		p.grant(2)
		wanted := 0
		for len(streams) < 2 || wanted == 0 {
			switch m := p.hear(); {
			case m.Type != lane.TypeControl:
			case m.record.Kind == lane.KindWant:
				require.Zero(t, wanted, "asked for twice")
				wanted = int(m.record.Count)
			default:
				p.queued = append(p.queued, m)
				streams = append(streams, p.opened())
			}
		}
		require.Equal(t, later, wanted)
		for id := lane.ID(3); len(streams) < first+later; id++ {
			streams = append(streams, p.serve(id))
		}
		for _, d := range dials {
			d := <-d
			require.NoError(t, d.err)
			defer d.s.Close()
		}
	})
}
