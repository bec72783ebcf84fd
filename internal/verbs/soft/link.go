//go:build linux && (amd64 || arm64)

package soft

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// Messages between the links of two connected QPs. Those that name a key carry it
// as a u32 after the type.
const (
	msgUp          = control.FirstLinkMsg + iota // the sender can receive now
	msgBye                                       // orderly end
	msgNak                                       // u8: what is wrong with your request, or mine
	msgKick                                      // look into your inbox
	msgKicked                                    // done
	msgLookup                                    // key: may I have this MR?
	msgMR                                        // MROffer and a descriptor, or a key alone: no
	msgRevoke                                    // key: let go of this MR
	msgRevoked                                   // key: done
	msgBounce                                    // commit your bounce area
	msgBounceReady                               // done
	msgNoBounce                                  // no memory for it
	msgWake                                      // your eventfd is full; wake up
)

// maxLinkMsg is the size of a link's receive buffer: no message of a link or of an
// established connection is longer.
const maxLinkMsg = 512

// revokeTimeout bounds how long the deregistration of an MR waits for a peer that
// is alive but stopped, but for ClosePatiently; after that the peer is cut off. Tests shorten it.
var revokeTimeout = 10 * time.Second

// link is the control connection of a connected QP. A goroutine waits for messages and
// for the hang-up.
type link struct {
	q        *qp
	tx, rx   *control.Socket // the same, but for a QP that is connected to itself
	onCM     func([]byte) error
	onHangup func(error)

	// sending orders what the link sends, of which nothing may follow its end.
	sending sync.Mutex
	ended   bool

	// giving keeps the revocation of an MR behind the message that gives it.
	giving sync.Mutex

	mu      sync.Mutex
	local   bool // we hung up
	down    bool
	cause   error // why we hung up; nil if the peer did, or for an orderly end
	granted []*mr
	// acks are closed when the peer has let go of an MR, or the link is down. The key of a window may be
	// revoked once more while the first answer is under way.
	acks map[uint32][]chan struct{}
}

// newLink makes the link of a QP that is about to be attached. Messages of the connection manager
// go to onCM, whose error hangs up, and the end of the connection to onHangup, once, both on the
// link's goroutine; that has no error where one of the two ends closed it properly.
func newLink(q *qp, tx, rx *control.Socket, onCM func([]byte) error, onHangup func(error)) *link {
	return &link{q: q, tx: tx, rx: rx, onCM: onCM, onHangup: onHangup}
}

// tell sends a message that is only a type.
func (l *link) tell(msg byte) { l.send([]byte{msg}, nil) }

// send sends a message, unless the link has ended. A peer that cannot be told would wait for
// ever, as for the answer to what it has asked, so that ends the link, too; l.mu is not held.
func (l *link) send(msg []byte, fds []int) {
	l.sending.Lock()
	var err error
	if !l.ended {
		err = l.tx.Send(msg, fds)
	}
	l.sending.Unlock()
	if err == nil || errors.Is(err, unix.EPIPE) || errors.Is(err, os.ErrClosed) {
		return // the link's goroutine sees the hang-up
	}
	l.close(fmt.Errorf("%w: it could not be told: %w", verbs.ErrPeerGone, err))
}

// sayBye is the last that the link sends.
func (l *link) sayBye() {
	l.sending.Lock()
	defer l.sending.Unlock()
	if !l.ended {
		l.ended = true
		_ = l.tx.Signal(msgBye)
	}
}

// tellKey sends a message about a key.
func (l *link) tellKey(msg byte, key uint32) {
	l.send(shm.HostOrder.AppendUint32([]byte{msg}, key), nil)
}

func (l *link) nak(code nakCode) { l.send([]byte{msgNak, byte(code)}, nil) }

// run is the link's goroutine. It reads the socket until that hangs up.
func (l *link) run() {
	buf := make([]byte, maxLinkMsg)
	short := false // of descriptors, when the last MR came
	for {
		var err error
		if short {
			short, err = l.nextSparing(buf)
		} else {
			err = l.next(buf)
		}
		if lack, ok := err.(missed); ok {
			if l.q.missedMR(l) {
				short = short || errors.Is(err, unix.EMFILE)
				continue
			}
			err = lack.error
		}
		if err == nil {
			continue
		}
		if err != errBye && !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
			l.close(err)
		}
		l.hangup(err == errBye)
		return
	}
}

// missed is the lack of descriptors or memory for which something that has come was lost.
type missed struct{ error }

func (m missed) Unwrap() error { return m.error }

// next takes the next message.
func (l *link) next(buf []byte) error {
	n, fds, err := l.rx.Recv(buf)
	switch {
	case errors.Is(err, unix.EMFILE):
		return missed{err}
	case err != nil:
		return err
	}
	return l.handle(buf[:n], fds)
}

// nextSparing is next when the last MR was lost for lack of descriptors: if this is an MR, the
// process's spare makes room for it. short is false when it has.
func (l *link) nextSparing(buf []byte) (short bool, err error) {
	n, err := l.rx.Peek(buf)
	if err != nil {
		return true, err
	}
	if !isMR(buf[:n]) {
		return true, l.next(buf)
	}
	var m *shm.RemoteMR
	err = l.rx.RecvSparing(buf, func(n, fd int) (err error) {
		m, err = l.openMR(buf[:n], fd)
		return err
	})
	switch {
	case errors.Is(err, unix.EMFILE):
		return true, missed{err}
	case err != nil:
		return true, err
	}
	return false, l.q.gotMR(l, m)
}

// isMR reports whether a message gives an MR, if it has come with a descriptor.
func isMR(msg []byte) bool { return msg[0] == msgMR && len(msg) == 1+shm.MROfferSize }

// openMR maps the MR of a message. Where there is no room, mappings of the peer make it.
func (l *link) openMR(msg []byte, fd int) (*shm.RemoteMR, error) {
	o := shm.ParseMROffer(msg[1:])
	m, err := o.Open(fd)
	for errors.Is(err, verbs.ErrNoMemory) && l.q.makeRoom(l) {
		m, err = o.Open(fd)
	}
	if errors.Is(err, verbs.ErrNoMemory) {
		return nil, missed{err}
	}
	return m, err
}

// errBye is the orderly end of a connection.
var errBye = errors.New("the peer has ended the connection")

// close hangs up, in good order if err is nil, and otherwise because of something the peer did,
// or because it cannot be spoken to. The link's goroutine does the rest.
func (l *link) close(err error) {
	l.mu.Lock()
	if l.local || l.down {
		l.mu.Unlock()
		return
	}
	l.local, l.cause = true, err
	l.mu.Unlock()
	if err == nil {
		l.sayBye()
	}
	l.tx.Shutdown()
}

// doorStuck is told that a write to the peer's eventfd has taken long, and whether the peer had filled that.
func (l *link) doorStuck(filled bool) {
	if filled {
		l.close(fmt.Errorf("%w: eventfd that was filled and blocks", verbs.ErrProtocol))
	} else {
		l.tell(msgWake)
	}
}

// hangup takes the link down: what the peer has published is still delivered, then its
// memory is let go of and everybody who waits is told.
func (l *link) hangup(bye bool) {
	defer l.closeSockets()
	l.mu.Lock()
	orderly, err := bye || l.local && l.cause == nil, l.cause
	switch {
	case orderly:
		err = nil
	case err == nil:
		err = verbs.ErrPeerGone
	}
	l.mu.Unlock()

	l.q.linkDown(l, orderly)

	// Whoever is about to say something is too late.
	l.sending.Lock()
	l.ended = true
	l.sending.Unlock()
	l.mu.Lock()
	l.down = true
	granted, acks := l.granted, l.acks
	l.granted, l.acks = nil, nil
	l.mu.Unlock()
	for _, m := range granted {
		m.unexport(l)
	}
	for _, waits := range acks {
		for _, c := range waits {
			close(c)
		}
	}
	if l.onHangup != nil {
		l.onHangup(err)
	}
}

// handle takes one message; an error hangs up.
func (l *link) handle(msg []byte, fds []int) error {
	if msg[0] < control.FirstLinkMsg {
		control.CloseFDs(fds)
		if l.onCM == nil || len(fds) > 0 {
			return fmt.Errorf("%w: connection manager message %d on a link", verbs.ErrProtocol, msg[0])
		}
		return l.onCM(append([]byte(nil), msg...))
	}
	if isMR(msg) && len(fds) == 1 {
		m, err := l.openMR(msg, fds[0])
		control.CloseFDs(fds)
		if err != nil {
			return err
		}
		return l.q.gotMR(l, m)
	}
	size := 1
	switch msg[0] {
	case msgNak:
		size = 2
	case msgLookup, msgMR, msgRevoke, msgRevoked:
		size = 5
	}
	if len(msg) != size || len(fds) > 0 {
		control.CloseFDs(fds)
		return fmt.Errorf("%w: link message %d of %d bytes with %d descriptors", verbs.ErrProtocol, msg[0], len(msg), len(fds))
	}
	switch msg[0] {
	case msgUp:
		l.q.retry()
	case msgBye:
		return errBye
	case msgNak:
		l.q.gotNak(l, nakCode(msg[1]))
	case msgKick:
		l.q.progressInbox()
		l.tell(msgKicked)
	case msgKicked:
		l.q.gotKicked(l)
	case msgLookup:
		l.lookup(shm.HostOrder.Uint32(msg[1:]))
	case msgMR:
		l.q.gotNoMR(l, shm.HostOrder.Uint32(msg[1:]))
	case msgRevoke:
		key := shm.HostOrder.Uint32(msg[1:])
		l.q.dropMR(l, key)
		l.tellKey(msgRevoked, key)
	case msgRevoked:
		l.acked(shm.HostOrder.Uint32(msg[1:]))
	case msgBounce:
		if err := l.q.commitBounce(); err != nil {
			l.tell(msgNoBounce)
			return nil
		}
		l.tell(msgBounceReady)
	case msgBounceReady, msgNoBounce:
		l.q.gotBounce(l, msg[0] == msgBounceReady)
	case msgWake:
		l.q.wakeSelf()
	default:
		return fmt.Errorf("%w: link message %d", verbs.ErrProtocol, msg[0])
	}
	return nil
}

// lookup answers a peer that asks for an MR: it gets those of the QP's PD that
// have a remote right. What it sent before may have invalidated the key.
func (l *link) lookup(key uint32) {
	l.q.progressInbox()
	m := l.q.ctx.keys.lookup(key)
	if m == nil || m.pd != l.q.pd || !m.usableBy(l.q) || m.access&verbs.AccessRemote == 0 || !l.give(m) {
		l.tellKey(msgMR, key)
	}
}

// give sends m; false if it cannot be had.
func (l *link) give(m *mr) bool {
	l.giving.Lock()
	defer l.giving.Unlock()
	m.mu.Lock()
	if !l.grant(m) {
		m.mu.Unlock()
		return false
	}
	fd, release, err := m.lendFD()
	m.mu.Unlock() // before the peer takes its time
	if err != nil {
		return false
	}
	l.send(m.offer().Append([]byte{msgMR}), []int{fd})
	release()
	return true
}

// grant notes that the peer has the memory of m; false if m is closed. m.mu is held.
func (l *link) grant(m *mr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down || !m.export(l) {
		return false
	}
	if !slices.Contains(l.granted, m) {
		l.granted = append(l.granted, m)
	}
	return true
}

// revoke has every link let go of an MR and waits for it: for revokeTimeout, or patiently, as long as
// they are up.
func revoke(links []*link, key uint32, patiently bool) {
	if len(links) == 0 {
		return
	}
	waits := make([]chan struct{}, len(links))
	for i, l := range links {
		waits[i] = l.startRevoke(key)
	}
	late := make(chan struct{}) // for all of them
	if !patiently {
		defer time.AfterFunc(revokeTimeout, func() { close(late) }).Stop()
	}
	for i, l := range links {
		select {
		case <-waits[i]:
			continue
		case <-late:
		}
		select {
		case <-waits[i]: // it was in time, as others were not
		default:
			l.close(fmt.Errorf("%w: the peer does not let go of a deregistered MR", verbs.ErrPeerGone))
		}
	}
}

func (l *link) startRevoke(key uint32) chan struct{} {
	c := make(chan struct{})
	l.giving.Lock()
	defer l.giving.Unlock()
	l.mu.Lock()
	if l.down {
		l.mu.Unlock()
		close(c)
		return c
	}
	if l.acks == nil {
		l.acks = make(map[uint32][]chan struct{})
	}
	l.acks[key] = append(l.acks[key], c)
	l.granted = slices.DeleteFunc(l.granted, func(m *mr) bool { return m.key == key })
	l.mu.Unlock()
	l.tellKey(msgRevoke, key)
	return c
}

func (l *link) acked(key uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waits := l.acks[key]
	if len(waits) == 0 {
		return
	}
	close(waits[0])
	if l.acks[key] = waits[1:]; len(waits) == 1 {
		delete(l.acks, key)
	}
}
