//go:build linux && (amd64 || arm64)

package soft

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// The manual bring-up: two QPs that were given each other's QPN and GID out of band
// and go through INIT, RTR and RTS find each other by number. The one with the
// higher QPN connects to the block of the other and says hello; both hand over their
// offers. The other nudges it when it comes second. What is posted meanwhile waits.
//
//	hello:   0 type u8 | 1 version u8 | 2 reserved u16 | 4 from QPN u32 | 8 to QPN u32 | 12 offer
//	answer:  0 type u8 | 1 offer; the dialer attaches and says msgUp, then the other attaches
//	nudge:   as a hello without offer
//	nudged:  0 type u8; the hello that was asked for is through
//	not yet: 0 type u8; nobody waits for a hello or a nudge of these numbers
//
// The reserved bytes of a hello and a nudge begin with the type of the QP, less that of RC:
// QPs of different types do not meet.
const (
	msgHello       = 64
	msgHelloAnswer = 65
	msgNotYet      = 66
	msgNudge       = 67
	msgNudged      = 68
	msgDatagrams   = 69 // a header alone; datagrams follow (datagram.go)
	helloHeader    = 12
	helloVersion   = 1
)

const (
	// maxHellos bounds the connections of unknown peers that a block reads at once. One more takes the place of
	// the oldest that is silent.
	maxHellos    = 64
	helloTimeout = 5 * time.Second
	// firstTimeout bounds how long Modify waits for a peer that is there already.
	firstTimeout = 100 * time.Millisecond
	firstRedial  = 200 * time.Microsecond
	lastRedial   = 100 * time.Millisecond
)

// bringUp is the search for a peer, until it is found or the QP is reset.
type bringUp struct {
	to    uint32
	stop  chan struct{} // closed when it ends
	began time.Time
	busy  sync.Mutex // held over a hello: there is one at a time
}

// startDial begins to look for the peer that attr names. mu is held. A peer on
// another host is never found: requests run into their timeout.
func (q *qp) startDial() *bringUp {
	if q.link != nil || q.typ == verbs.QPTypeUD || !knownLocal(q.attr.AH.DGID.Addr()) {
		return nil // the connection manager has connected it, or there is nobody to look for
	}
	q.dialing = &bringUp{to: q.attr.DestQPN, stop: make(chan struct{}), began: time.Now()}
	return q.dialing
}

// endDial stops looking. mu is held.
func (q *qp) endDial() {
	if q.dialing != nil {
		close(q.dialing.stop)
		q.dialing = nil
	}
}

// dial connects the QP at once if the peer is there, and otherwise sees to it that
// it is connected later.
func (q *qp) dial(d *bringUp, to uint32) {
	if to == q.num {
		if !q.connectSelf(d) {
			go q.redial(d, to)
		}
		return
	}
	// A block that cannot listen is as a port that is down: if we have to be found,
	// requests run into their timeout.
	err := q.ctx.qpns.listen(q.num)
	switch {
	case to < q.num:
		if !q.hello(d, to, firstTimeout) {
			go q.redial(d, to)
		}
	case err == nil && q.nudge(to):
		select {
		case <-d.stop:
		case <-time.After(firstTimeout):
		}
	}
}

// redial tries until the peer is there.
func (q *qp) redial(d *bringUp, to uint32) {
	for pause := firstRedial; ; pause = min(2*pause, lastRedial) {
		select {
		case <-d.stop:
			return
		case <-time.After(pause):
		}
		if to == q.num && q.connectSelf(d) || to != q.num && q.hello(d, to, helloTimeout) {
			return
		}
	}
}

// endsSearch reports whether nobody is to be looked for any more, by what came of a try: the QP is connected, or not
// to be. What a try may lack, a later one may have.
func endsSearch(err error) bool {
	return err == nil || errors.Is(err, verbs.ErrState) || errors.Is(err, verbs.ErrClosed)
}

// helloMessage begins a message to the block of to.
func (q *qp) helloMessage(typ byte, to uint32) []byte {
	msg := make([]byte, helloHeader, control.MaxMessage)
	msg[0], msg[1], msg[2] = typ, helloVersion, q.helloType()
	shm.HostOrder.PutUint32(msg[4:], q.num)
	shm.HostOrder.PutUint32(msg[8:], to)
	return msg
}

// helloType is the type of a QP in a hello.
func (q *qp) helloType() byte { return byte(q.typ - verbs.QPTypeRC) }

// hello says hello once; true ends the search.
func (q *qp) hello(d *bringUp, to uint32, patience time.Duration) bool {
	d.busy.Lock()
	defer d.busy.Unlock()
	if err := q.offer(); err != nil {
		return endsSearch(err)
	}
	s, err := dialBlock(blockName(q.ctx.dev.name, to>>qpnBlockBits))
	if err != nil {
		return false
	}
	reply, fds, err := q.exchangeOffer(s, q.helloMessage(msgHello, to), patience)
	if err != nil || reply[0] != msgHelloAnswer {
		control.CloseFDs(fds)
		s.Close()
		return false
	}
	return endsSearch(q.attach(newLink(q, s, s, nil, nil), reply[1:], fds, d))
}

// nudge has a peer with a higher QPN say hello now; false if it was not there.
func (q *qp) nudge(to uint32) bool {
	s, err := dialBlock(blockName(q.ctx.dev.name, to>>qpnBlockBits))
	if err != nil {
		return false
	}
	defer s.Close()
	reply, fds, err := exchange(s, firstTimeout, func() error { return s.Send(q.helloMessage(msgNudge, to), nil) })
	control.CloseFDs(fds)
	return err == nil && reply[0] == msgNudged && q.expects(to) != nil
}

// exchangeOffer sends what begins with head and ends with the QP's offer, and waits for the answer.
func (q *qp) exchangeOffer(s *control.Socket, head []byte, patience time.Duration) ([]byte, []int, error) {
	return exchange(s, patience, func() error {
		return q.sendOffer(s, func(offer []byte) []byte { return append(head, offer...) })
	})
}

// exchange sends a message and waits for the answer.
func exchange(s *control.Socket, patience time.Duration, send func() error) ([]byte, []int, error) {
	if err := send(); err != nil {
		return nil, nil, err
	}
	_ = s.SetReadDeadline(time.Now().Add(patience))
	buf := make([]byte, control.MaxMessage)
	n, fds, err := s.Recv(buf)
	if err != nil {
		return nil, nil, err
	}
	_ = s.SetReadDeadline(time.Time{})
	return buf[:n], fds, nil
}

// dialBlock connects to whoever has a block.
func dialBlock(name string) (*control.Socket, error) {
	fd, err := control.OpenSocket()
	if err != nil {
		return nil, err
	}
	s, err := control.NewSocket(fd)
	if err != nil {
		return nil, err
	}
	if err = s.Connect(name); err == nil {
		err = checkPeer(s)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// checkPeer refuses the processes of other users.
func checkPeer(s *control.Socket) error {
	pid, uid, err := s.PeerCred()
	if err == nil && !control.MayTalk(pid, uid, false) {
		err = fmt.Errorf("process of user %d: %w", uid, os.ErrPermission)
	}
	return err
}

// connectSelf connects a QP that has its own number for a peer; true ends the search.
func (q *qp) connectSelf(d *bringUp) bool {
	tx, rx, err := control.SocketPair()
	if err != nil {
		return false
	}
	var offer []byte
	var fds []int
	err = q.withOffer(func(blob []byte, own []int) (err error) {
		offer = blob
		fds, err = dupFDs(own)
		return err
	})
	if err != nil {
		tx.Close()
		rx.Close()
		return endsSearch(err)
	}
	return endsSearch(q.attach(newLink(q, tx, rx, nil, nil), offer, fds, d))
}

// blockAcceptor takes the hellos for the QPs of a block.
type blockAcceptor struct {
	blocks *qpnBlocks
	sock   *control.Socket
	busy   atomic.Int32

	mu     sync.Mutex
	silent []*control.Socket // of those that are being read, the oldest first
}

func (a *blockAcceptor) run() {
	for {
		fd, _, err := a.sock.Accept()
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			// There are no descriptors: dialers try again, and so do we.
			time.Sleep(lastRedial)
			continue
		}
		s, err := control.NewSocket(fd)
		if err != nil {
			continue
		}
		if checkPeer(s) != nil || !a.admit(s) {
			s.Close()
			continue
		}
		go func() {
			defer a.busy.Add(-1)
			if !a.answer(s) {
				_ = s.Signal(msgNotYet)
				s.Close()
			}
		}()
	}
}

// admit takes in an unknown peer. If there are too many, the oldest that has said nothing yet is hung up
// on; false if there is none.
func (a *blockAcceptor) admit(s *control.Socket) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.busy.Load() >= maxHellos {
		i := slices.IndexFunc(a.silent, (*control.Socket).Silent)
		if i < 0 {
			return false
		}
		a.silent[i].Shutdown()
		a.silent = slices.Delete(a.silent, i, i+1)
	}
	a.busy.Add(1)
	a.silent = append(a.silent, s)
	return true
}

// heard is told that an unknown peer has said something, or has hung up.
func (a *blockAcceptor) heard(s *control.Socket) {
	a.mu.Lock()
	a.silent = without(a.silent, s)
	a.mu.Unlock()
}

// answer reads the hello of an unknown peer and answers it, and reports whether it took over the
// socket.
func (a *blockAcceptor) answer(s *control.Socket) bool {
	buf := make([]byte, control.MaxMessage)
	_ = s.SetReadDeadline(time.Now().Add(helloTimeout))
	n, fds, err := s.Recv(buf)
	a.heard(s)
	if err != nil {
		return false
	}
	if n == helloHeader && buf[0] == msgDatagrams && buf[1] == helloVersion && len(fds) == 0 {
		_ = s.SetReadDeadline(time.Time{})
		return a.blocks.receiveDatagrams(s)
	}
	if n < helloHeader || buf[1] != helloVersion || buf[0] != msgHello && (buf[0] != msgNudge || n != helloHeader) {
		control.CloseFDs(fds)
		return false
	}
	from, to := shm.HostOrder.Uint32(buf[4:]), shm.HostOrder.Uint32(buf[8:])
	q := a.blocks.find(to)
	if q != nil && buf[2] != q.helloType() {
		q = nil
	}
	if q != nil && buf[0] == msgNudge && from < to && q.nudged(from) {
		control.CloseFDs(fds)
		_ = s.Signal(msgNudged)
		s.Close()
		return true
	}
	if q == nil || buf[0] == msgNudge {
		control.CloseFDs(fds)
		return false
	}
	d := q.expects(from)
	if d == nil {
		control.CloseFDs(fds)
		return false
	}
	return q.answer(d, s, buf[helloHeader:n], fds)
}

// answer answers a hello. It attaches once the dialer has, which may have given up
// meanwhile; false leaves the socket to the caller.
func (q *qp) answer(d *bringUp, s *control.Socket, peerOffer []byte, peerFDs []int) bool {
	reply, fds, err := q.exchangeOffer(s, []byte{msgHelloAnswer}, helloTimeout)
	if err != nil || len(reply) != 1 || reply[0] != msgUp || len(fds) > 0 {
		control.CloseFDs(fds)
		control.CloseFDs(peerFDs)
		return false
	}
	// The socket is the link's from here on: the dialer sees a failure as a hang-up.
	_ = q.attach(newLink(q, s, s, nil, nil), peerOffer, peerFDs, d)
	return true
}

// nudged says hello to a peer now and reports whether that is through: it may have
// been already, when the nudge came.
func (q *qp) nudged(from uint32) bool {
	if d := q.expects(from); d != nil {
		q.hello(d, from, firstTimeout)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.link != nil && q.attr.DestQPN == from
}

// expects returns the search for the peer of that number, nil if the QP does not wait for it. One
// that searches is in RTR or above, and has no link.
func (q *qp) expects(from uint32) *bringUp {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.attr.DestQPN != from {
		return nil
	}
	return q.dialing
}
