package faulty

import "github.com/rdmanet/go-rdmanet/internal/verbs/driver"

var _ driver.PeerChecker = (*CMID)(nil)

// LosePeers has PeerGone report that the peers of the ids that there are have gone, of which no event has
// come yet.
func (d *Driver) LosePeers() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range d.ids {
		id.peerLost.Store(true)
	}
}

// PeerGone implements driver.PeerChecker.
func (id *CMID) PeerGone() bool {
	c, ok := id.CMID.(driver.PeerChecker)
	return id.peerLost.Load() || ok && c.PeerGone()
}
