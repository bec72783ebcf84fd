package rdmanet

import (
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring"
)

var errCause = errors.New("the cause")

// TestTermination asks everything of connections to which something has happened.
func TestTermination(t *testing.T) {
	type answers struct {
		readErr, writeErr                          error
		readEnded, writeEnded, received, broken    bool
		maySend, mayFlush, peerListens, peerTakes  bool
		over, expected, mayData, mayClose, mayKeep bool
		endKind                                    ring.Kind
		goneErrno                                  syscall.Errno
		state                                      ConnState
	}
	fresh := answers{
		maySend: true, mayFlush: true, peerListens: true, peerTakes: true,
		mayData: true, mayClose: true, mayKeep: true, endKind: ring.KindFIN, goneErrno: syscall.ECONNRESET,
	}
	fail := func(t *termination) {
		t.setCause(errCause)
		t.fail()
	}
	for name, c := range map[string]struct {
		happens func(*termination)
		want    func(*answers)
	}{
		"nothing": {func(*termination) {}, func(*answers) {}},
		"closed": {func(t *termination) { t.close(); t.shutWrite() }, func(a *answers) {
			a.readErr, a.writeErr = net.ErrClosed, net.ErrClosed
			a.readEnded, a.writeEnded, a.maySend, a.expected, a.state = true, true, false, true, StateClosing
		}},
		"read shut": {func(t *termination) { t.shutRead() }, func(a *answers) {
			a.readErr, a.readEnded, a.endKind = io.EOF, true, ring.KindClose
		}},
		"write shut": {func(t *termination) { t.shutWrite() }, func(a *answers) {
			a.writeErr, a.writeEnded, a.maySend, a.state = syscall.EPIPE, true, false, StateFinWait
		}},
		"peer's FIN": {(*termination).peerFIN, func(a *answers) {
			a.readErr, a.received, a.mayData, a.state = io.EOF, true, false, StateCloseWait
		}},
		"both FINs": {func(t *termination) { t.peerFIN(); t.shutWrite() }, func(a *answers) {
			a.readErr, a.received, a.mayData, a.state = io.EOF, true, false, StateClosing
			a.writeErr, a.writeEnded, a.maySend, a.over = syscall.EPIPE, true, false, true
		}},
		"peer closed": {(*termination).peerClose, func(a *answers) {
			a.readErr, a.received, a.mayData, a.state = io.EOF, true, false, StateCloseWait
			a.writeErr, a.writeEnded, a.maySend = syscall.EPIPE, true, false
			a.mayFlush, a.peerListens, a.peerTakes, a.expected = false, false, false, true
		}},
		"requests fail": {func(t *termination) { t.endSending(false) }, func(a *answers) {
			a.broken, a.maySend, a.mayFlush, a.peerTakes, a.over, a.state = true, false, false, false, true, StateFailed
		}},
		"unanswered": {func(t *termination) { t.endSending(true) }, func(a *answers) {
			a.broken, a.maySend, a.mayFlush, a.peerTakes, a.over, a.state = true, false, false, false, true, StateFailed
			a.goneErrno = syscall.ETIMEDOUT
		}},
		"disconnected after the peer's FIN": {func(t *termination) { t.peerFIN(); t.disconnected() }, func(a *answers) {
			a.readErr, a.received, a.mayData = io.EOF, true, false
			a.broken, a.maySend, a.mayFlush, a.peerTakes, a.state = true, false, false, false, StateFailed
		}},
		"failed": {fail, func(a *answers) {
			a.readErr, a.writeErr, a.readEnded, a.writeEnded, a.received = errCause, errCause, true, true, true
			a.broken, a.maySend, a.mayFlush, a.peerListens, a.peerTakes, a.over, a.state = true, false, false, false, false, true, StateFailed
		}},
		"failed after the peer's FIN": {func(t *termination) { t.peerFIN(); fail(t) }, func(a *answers) {
			a.readErr, a.writeErr, a.readEnded, a.writeEnded, a.received, a.mayData = io.EOF, errCause, true, true, true, false
			a.broken, a.maySend, a.mayFlush, a.peerListens, a.peerTakes, a.over, a.state = true, false, false, false, false, true, StateFailed
		}},
		"failed, and the peer is told of the checksum": {func(t *termination) { t.toldCorrupt(); fail(t) }, func(a *answers) {
			a.readErr, a.writeErr, a.readEnded, a.writeEnded, a.received = errCause, errCause, true, true, true
			a.broken, a.maySend, a.mayFlush, a.peerListens, a.over, a.state = true, false, false, false, true, StateFailed
		}},
		"failed after the peer's close": {func(t *termination) { t.peerClose(); fail(t) }, func(a *answers) {
			a.readErr, a.writeErr, a.readEnded, a.writeEnded, a.received, a.mayData = io.EOF, syscall.EPIPE, true, true, true, false
			a.broken, a.maySend, a.mayFlush, a.peerListens, a.peerTakes, a.over, a.expected, a.state = true, false, false, false, false, true, true, StateCloseWait
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var term termination
			c.happens(&term)
			want := fresh
			c.want(&want)
			require.Equal(t, want, answers{
				readErr: term.readErr(), writeErr: term.writeErr(),
				readEnded: term.ended(dirRead), writeEnded: term.ended(dirWrite), received: term.received(), broken: term.broken(),
				maySend: term.maySend(), mayFlush: term.mayFlush(), peerListens: term.peerListens(), peerTakes: term.peerTakes(),
				over: term.over(), expected: term.expected(),
				mayData: term.peerMaySay(ring.KindData), mayClose: term.peerMaySay(ring.KindClose), mayKeep: term.peerMaySay(ring.KindKeepAlive),
				endKind: term.endKind(), goneErrno: term.goneErrno(), state: term.state(),
			})
		})
	}
}

// TestTerminationFirstCounts has many note an end at once: one of each is the first, and
// whoever sees the failure sees its cause.
func TestTerminationFirstCounts(t *testing.T) {
	var term termination
	var causes, fails, disconnects atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if term.setCause(errCause) {
				causes.Add(1)
			}
			if term.fail() {
				fails.Add(1)
			}
			if term.disconnect() {
				disconnects.Add(1)
			}
		})
		all.Go(func() {
			for !term.failed() {
				runtime.Gosched()
			}
			if term.err() == nil {
				t.Error("failed without a cause")
			}
		})
	}
	all.Wait()
	require.EqualValues(t, []int32{1, 1, 1}, []int32{causes.Load(), fails.Load(), disconnects.Load()})
}
