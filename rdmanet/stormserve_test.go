//go:build linux

package rdmanet

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/storm"
)

// RemoteStorm is what a process of a storm does: many dials at once, or the listener that
// they go to.
type RemoteStorm struct {
	Network string // "rdma", or "tcp" for package net's
	Addr    string // where to dial
	Echo    bool   // the server answers, and the client waits for that

	First, Dials int // the numbers of the clients

	OwnLanes bool // each client brings up a lane of its own

	Backlog          int
	HandshakeTimeout time.Duration
	Pause            time.Duration // before each Accept
}

// StormListen begins to serve, and returns the address.
func (r *Remote) StormListen(a RemoteStorm, at *string) error {
	var l net.Listener
	var err error
	if a.Network == "rdma" {
		l, err = (&ListenConfig{Backlog: a.Backlog, HandshakeTimeout: a.HandshakeTimeout, Logger: quiet}).Listen(context.Background(), "rdma", testAddr())
	} else {
		l, err = net.Listen(a.Network, testAddr())
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.storm = storm.Serve(l, a.Echo, a.Pause)
	r.mu.Unlock()
	*at = l.Addr().String()
	return nil
}

// StormTally waits until so many clients were served, for as long as they still come, and
// ends the listener.
func (r *Remote) StormTally(want int, t *storm.Tally) (err error) {
	r.mu.Lock()
	s := r.storm
	r.mu.Unlock()
	*t, err = s.Finish(want, lasting/2)
	return err
}

// StormDial has all clients dial at once.
func (r *Remote) StormDial(a RemoteStorm, t *storm.Tally) error {
	lanes := laneSet{}
	*t = storm.Dial(a.First, a.Dials, a.Echo, func(client uint64) (net.Conn, error) {
		if a.Network != "rdma" {
			return net.Dial(a.Network, a.Addr)
		}
		if a.OwnLanes {
			return lanes.note(ownLane(client-uint64(a.First)).Dial("rdma", a.Addr))
		}
		return (&Dialer{Logger: quiet}).Dial("rdma", a.Addr)
	})
	if n := lanes.len(); a.OwnLanes && a.Network == "rdma" && n < len(t.Done) {
		t.Failed = append(t.Failed, fmt.Sprintf("%d clients had %d lanes", len(t.Done), n))
	}
	return nil
}

// Spin keeps one processor busy until the process ends, which it does with the test's own,
// also where that dies.
func (r *Remote) Spin(_ int, _ *int) error {
	go storm.Spin()
	return nil
}
