//go:build linux && (amd64 || arm64)

package soft

import "github.com/rdmanet/go-rdmanet/internal/verbs/driver"

var _ driver.PeerChecker = (*cmID)(nil)

// PeerGone implements driver.PeerChecker. The kernel hangs up for a process as it ends, before anybody can
// wait for that.
func (id *cmID) PeerGone() bool {
	id.mu.Lock()
	sock := id.sock
	id.mu.Unlock()
	return sock != nil && sock.HungUp()
}
