//go:build linux && (amd64 || arm64)

package soft

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// Two listeners share an address, where both permit it, by sharing the one listening
// socket: the second asks the first for its descriptor. Both take dialers from the same
// queue, which lasts as long as one of them does, so no dialer ever finds nobody.
//
//	SHARE    type  vers                 the second is a dialer that says this and no REQ
//	SHARED   type  vers  parts          with the descriptors of the parts
//
// The parts are a mask of the bits below, and the descriptors come in their order.
const (
	shareSocket    = 1 << 0 // the listening socket, always there
	shareSlot      = 1 << 1 // the slot of an address that is no wildcard
	shareCompanion = 1 << 2 // the file that goes with the address

	// joinPatience bounds the attempts to join a listener that may come or leave at that moment.
	joinPatience = time.Second
)

var _ driver.ListenSharer = (*cmID)(nil)

// SetCompanion implements driver.ListenSharer.
func (id *cmID) SetCompanion(f *os.File) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.expect("SetCompanion", cmBound); err != nil {
		return errors.Join(err, f.Close())
	}
	id.companion = f
	return nil
}

// Companion implements driver.ListenSharer.
func (id *cmID) Companion() *os.File {
	id.mu.Lock()
	defer id.mu.Unlock()
	f := id.companion
	id.companion = nil
	return f
}

// claimOrJoin takes addr, or joins who has it if both permit that.
func (id *cmID) claimOrJoin(addr netip.AddrPort) (*portClaim, error) {
	if !id.opts.ReusePort || addr.Port() == 0 {
		return claimPort(id.dev.name, addr, id.opts.AFOnly)
	}
	began := time.Now()
	for pause := firstClaimPause; ; pause = min(2*pause, lastClaimPause) {
		claim, err := claimPortNow(id.dev.name, addr, id.opts.AFOnly)
		if held := (heldError{}); !errors.As(err, &held) {
			return claim, err
		}
		joined, joinErr := id.join(addr)
		if joinErr == nil {
			return joined, nil
		}
		err = fmt.Errorf("%w; and it cannot be shared: %v", err, joinErr)
		if !errors.Is(joinErr, verbs.ErrPeerGone) || time.Since(began) > joinPatience {
			return nil, err
		}
		time.Sleep(pause)
	}
}

// join asks the listener at addr for what it has. Called with mu held; the listener is
// another id, which answers on a goroutine of its own.
func (id *cmID) join(addr netip.AddrPort) (*portClaim, error) {
	name := control.BoundName(id.dev.name, control.BoundHost(addr.Addr(), id.opts.AFOnly), addr.Port())
	fd, err := control.OpenSocket()
	if err != nil {
		return nil, err
	}
	sock, err := control.NewSocket(fd)
	if err != nil {
		return nil, err
	}
	defer sock.Close()
	if err := sock.Connect(name); err != nil {
		return nil, fmt.Errorf("%w: %w", verbs.ErrPeerGone, err)
	}
	if pid, uid, err := sock.PeerCred(); err != nil || !control.SameUser(pid, uid) {
		return nil, driver.Explain("it belongs to another user", errors.Join(unix.EACCES, err))
	}
	patience := cmp.Or(id.opts.HandshakeTimeout, defaultHandshakeTimeout)
	reply, fds, err := exchange(sock, patience, func() error { return sock.Signal(control.MsgSHARE, control.WireVersion) })
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("the process that listens there has not answered within %v: is it stopped?", patience)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", verbs.ErrPeerGone, err)
	}
	claim, companion, err := parseShared(reply, fds, name)
	if err != nil {
		control.CloseFDs(fds)
		return nil, err
	}
	claim.addr, claim.shared = addr, true
	id.companion = companion
	return claim, nil
}

// parseShared takes a SHARED and its descriptors, which stay the caller's if it fails.
func parseShared(b []byte, fds []int, name string) (*portClaim, *os.File, error) {
	if len(b) > 0 && b[0] == control.MsgREJ {
		_, reason, _, err := control.ParseREJ(b)
		switch {
		case err != nil:
			return nil, nil, err
		case reason != driver.RejectDenied:
			return nil, nil, fmt.Errorf("%w: its listener is closing, or has too many dialers just now", verbs.ErrPeerGone)
		}
		return nil, nil, driver.Explain("its listener is without ListenConfig.ReusePort", unix.EACCES)
	}
	if len(b) != 3 || b[0] != control.MsgSHARED || b[1] != control.WireVersion || b[2]&shareSocket == 0 {
		return nil, nil, control.BadMessage("no SHARED")
	}
	claim := &portClaim{fd: -1, slot: -1}
	companion := -1
	left := fds
	for _, part := range []struct {
		bit byte
		to  *int
	}{{shareSocket, &claim.fd}, {shareSlot, &claim.slot}, {shareCompanion, &companion}} {
		if b[2]&part.bit == 0 {
			continue
		}
		if len(left) == 0 {
			return nil, nil, control.BadMessage("SHARED without its descriptors")
		}
		*part.to, left = left[0], left[1:]
	}
	if len(left) > 0 || b[2] > shareSocket|shareSlot|shareCompanion {
		return nil, nil, control.BadMessage("SHARED with more than there is")
	}
	if err := checkListening(claim.fd, name); err != nil {
		return nil, nil, err
	}
	if companion < 0 {
		return claim, nil, nil
	}
	return claim, os.NewFile(uintptr(companion), "rdma-soft-companion"), nil
}

// checkListening checks that fd is what listens at name.
func checkListening(fd int, name string) error {
	listening, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil || listening != 1 {
		return control.BadMessage("SHARED with a descriptor that does not listen")
	}
	sa, err := unix.Getsockname(fd)
	if u, ok := sa.(*unix.SockaddrUnix); err != nil || !ok || u.Name != name {
		return control.BadMessage("SHARED with the socket of another address")
	}
	return nil
}

// share gives another listener of the same user what this one has. The caller is a
// half-open dialer's goroutine, and sock its socket.
func (l *listener) share(sock *control.Socket) {
	pid, uid, err := sock.PeerCred()
	l.id.mu.Lock()
	defer l.id.mu.Unlock() // so that the descriptors stay
	switch {
	case err != nil || !control.SameUser(pid, uid) || !l.opts.ReusePort:
		refuse(sock, driver.RejectDenied, nil)
		return
	case l.id.state != cmListening: // it is closing
		l.turnAway(sock)
		return
	}
	defer sock.Close()
	l.id.claim.shared = true
	msg := []byte{control.MsgSHARED, control.WireVersion, shareSocket}
	_ = l.sock.Control(func(fd uintptr) {
		fds := []int{int(fd)}
		if slot := l.id.claim.slot; slot >= 0 {
			msg[2] |= shareSlot
			fds = append(fds, slot)
		}
		send := func() { _ = sock.Send(msg, fds) }
		if l.id.companion == nil {
			send()
			return
		}
		rc, err := l.id.companion.SyscallConn()
		if err != nil {
			return
		}
		_ = rc.Control(func(fd uintptr) {
			msg[2] |= shareCompanion
			fds = append(fds, int(fd))
			send()
		})
	})
}

// turnAway ends the connection of a dialer that this listener cannot serve any more.
// Where others may listen at its address, it is told, and tries again.
func (l *listener) turnAway(sock *control.Socket) {
	if l.opts.ReusePort {
		refuse(sock, driver.RejectConsumer, nil)
		return
	}
	sock.Close()
}
