//go:build linux

package rdmanet

import (
	"net"
	"sync"
	"syscall"
	"testing"
	"time"
)

// maxOwnLanes is how many clients of one process ownLane tells apart.
const maxOwnLanes = 250

// ownLane returns a Dialer whose connections share no link with those of other clients, since
// the type of service is set on a QP.
func ownLane(client uint64) *Dialer { return &Dialer{TOS: uint8(client), Logger: quiet} }

// A laneSet has the lanes that connections were dialled on.
type laneSet struct {
	mu    sync.Mutex
	lanes map[uint64]struct{}
}

func (s *laneSet) note(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lanes == nil {
		s.lanes = map[uint64]struct{}{}
	}
	s.lanes[c.(*Conn).info().Lane] = struct{}{}
	return c, nil
}

func (s *laneSet) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lanes)
}

// TestStormLanes has each client bring up a lane of its own, more of them at once than a
// listener has come up at a time. The clients of other storms share a few lanes. The listener
// stands still until they have asked, so that they come at once however fast it is, or for
// longer than it waits for a client. Or those who dial stand still when they are answered, and
// have places that others wait for.
func TestStormLanes(t *testing.T) {
	const asked = 100 * time.Millisecond
	eachStorm(t, func(t *testing.T, s stormScale, network string) {
		for _, c := range []struct {
			name    string
			echo    bool
			listens time.Duration // for so long the listener is stopped,
			dials   time.Duration // and then all who dial but one
		}{
			{"answers", true, asked, 0},
			{"messages", false, asked, 0},
			{"listener stopped", false, s.stop, 0},
			{"dialers stopped", true, asked, s.stop},
		} {
			stopped := max(c.listens, c.dials) > asked
			if stopped && network == "tcp" && s.handshake > 0 {
				continue // in make storm
			}
			t.Run(c.name, func(t *testing.T) {
				a := RemoteStorm{Network: network, OwnLanes: true, Echo: c.echo, Dials: s.lanes}
				if stopped {
					a.HandshakeTimeout = s.handshake
				}
				crowd(t, a, s.processes, func(server *remote, dialers []*remote) {
					var answered []*remote
					if c.dials > 0 {
						answered = dialers[1:]
					}
					signalAll(syscall.SIGSTOP, server)
					time.Sleep(c.listens)
					signalAll(syscall.SIGSTOP, answered...)
					signalAll(syscall.SIGCONT, server)
					time.Sleep(c.dials)
					signalAll(syscall.SIGCONT, answered...)
				})
			})
		}
	})
}
