package rdmanet

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
)

// A livePair is a pair of sockets of which the programs that look for the peer's end get
// one. Nothing is sent through it; the other is closed when the peer has ended.
type livePair struct {
	near int
	far  atomic.Int32 // -1 when it is closed
}

func newLivePair() (*livePair, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		err = os.NewSyscallError("socketpair", err)
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			err = fmt.Errorf("%w (raise RLIMIT_NOFILE)", err)
		}
		return nil, err
	}
	p := &livePair{near: fds[0]}
	p.far.Store(int32(fds[1]))
	return p, nil
}

// end has reads of the near socket be at their end.
func (p *livePair) end() {
	if fd := p.far.Swap(-1); fd >= 0 {
		_ = syscall.Close(int(fd)) // nothing is in it
	}
}

// close is for when nobody has the near socket any more.
func (p *livePair) close() {
	p.end()
	_ = syscall.Close(p.near)
}

// liveness returns the descriptor that tells whether the peer has ended. The caller holds a
// reference to the Conn.
func (st *stream) liveness() (fd int, err error) {
	p := st.alive.Load()
	if p == nil {
		if p, err = newLivePair(); err != nil {
			return -1, err
		}
		if !st.alive.CompareAndSwap(nil, p) { // another was faster
			p.close()
			p = st.alive.Load()
		}
	}
	if st.s.Ended() {
		p.end()
	}
	return p.near, nil
}

// closeLiveness is called when no call is inside the Conn any more.
func (st *stream) closeLiveness() {
	if p := st.alive.Swap(nil); p != nil {
		p.close()
	}
}
