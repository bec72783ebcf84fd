//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
)

// A sharedChannel is a kernelChannel for many compChannels, one for each of the device's completion vectors:
// ten thousand of them cost no descriptor of their own. One goroutine, parked in the network poller, takes
// the events and wakes whoever waits for those of the CQ that each names. That is a goroutine to switch to
// for each wake-up, so the first compChannels of a device do without.
type sharedChannel struct {
	*kernelChannel
	file  *os.File
	done  chan struct{} // closed when the goroutine leaves the library alone
	lost  atomic.Bool   // there will be no more events
	users int           // guarded by the lock of sharedChannels

	members  sync.Mutex
	channels map[*compChannel]struct{}
}

// sharedChannels are those of a context, by their vectors. Each is there as long as it has users.
type sharedChannels struct {
	making   sync.Mutex // held while one is made, which may block, and taken before mu
	mu       sync.Mutex
	byVector map[uint32]*sharedChannel
}

// hold returns the one of a vector, with one user more.
func (all *sharedChannels) hold(ctx *devContext, vector uint32) (*sharedChannel, error) {
	if s := all.use(vector, nil); s != nil {
		return s, nil
	}
	all.making.Lock()
	defer all.making.Unlock()
	if s := all.use(vector, nil); s != nil {
		return s, nil
	}
	made, err := newSharedChannel(ctx, vector)
	if err != nil {
		return nil, err
	}
	return all.use(vector, made), nil
}

// use adds a user to the channel of a vector, which is made if there is none; nil if that is nil.
func (all *sharedChannels) use(vector uint32, made *sharedChannel) *sharedChannel {
	all.mu.Lock()
	defer all.mu.Unlock()
	s := all.byVector[vector]
	if s == nil {
		if made == nil {
			return nil
		}
		if all.byVector == nil {
			all.byVector = map[uint32]*sharedChannel{}
		}
		s = made
		all.byVector[vector] = s
	}
	s.users++
	return s
}

// release takes a user away, the last of which ends the channel.
func (all *sharedChannels) release(s *sharedChannel) error {
	all.mu.Lock()
	s.users--
	last := s.users == 0
	if last {
		delete(all.byVector, s.vector)
	}
	all.mu.Unlock()
	if !last {
		return nil
	}
	err := s.file.Close()
	<-s.done
	return errors.Join(err, s.destroy())
}

func newSharedChannel(ctx *devContext, vector uint32) (*sharedChannel, error) {
	k, err := newKernelChannel(ctx, vector)
	if err != nil {
		return nil, err
	}
	s := &sharedChannel{kernelChannel: k, done: make(chan struct{}), channels: map[*compChannel]struct{}{}}
	raw, err := s.open()
	if err != nil {
		return nil, errors.Join(err, k.destroy())
	}
	go s.run(raw)
	return s, nil
}

func (s *sharedChannel) open() (raw syscall.RawConn, err error) {
	if s.file, err = pollable(s.fd(), "rdma-completion-channel"); err != nil {
		return nil, err
	}
	if raw, err = s.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	return raw, nil
}

// run takes events until the file is closed or the device is gone, of which the poller may hear first.
func (s *sharedChannel) run(raw syscall.RawConn) {
	defer close(s.done)
	defer s.fail()
	_ = raw.Read(func(uintptr) bool {
		for {
			switch ch, err := s.take(); {
			case err != nil:
				return true
			case ch == nil:
				return false
			default:
				ch.wake()
			}
		}
	})
}

// fail tells all who wait that no event will come.
func (s *sharedChannel) fail() {
	s.lost.Store(true)
	s.members.Lock()
	defer s.members.Unlock()
	for ch := range s.channels {
		ch.wake()
	}
}

// join has ch hear of the end of the device; leave ends that.
func (s *sharedChannel) join(ch *compChannel) {
	s.members.Lock()
	defer s.members.Unlock()
	s.channels[ch] = struct{}{}
}

func (s *sharedChannel) leave(ch *compChannel) {
	s.members.Lock()
	defer s.members.Unlock()
	delete(s.channels, ch)
}
