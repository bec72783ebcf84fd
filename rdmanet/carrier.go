package rdmanet

import (
	"io"
	"net"
	"time"
)

// A carrier moves the bytes of a Conn, which adds to it who may be in which call, addresses
// and the errors of package net: here they are causes. There are two: a stream has a QP of
// its own, a linked shares one with others.
type carrier interface {
	// For the holder of the read lock. await waits for unread bytes and returns those that
	// lie together: at most limit, if that is above 0; otherwise they are lent, and a Close
	// leaves none of them unread, until consumed, which takes the first n of what await has
	// returned, or unlend. placed says that nobody has copied them.
	read(p []byte) (int, error)
	await(limit int) ([]byte, error)
	consumed(n int, placed bool)
	unlend()

	// holdPeek keeps what await has returned where it is, also after Close, until
	// releasePeek, which needs no lock and reports whether it was held.
	holdPeek()
	releasePeek() bool

	// For the holder of the write lock. What reserve returns stays until commit or
	// releaseReserve, which needs no lock.
	write(p []byte) (int, error)
	reserve(n int) ([]byte, error)
	commit(n int) error
	releaseReserve()

	// readFrom sends what one Read of r gives, for a caller without any lock. Its errors are
	// those of calls.
	readFrom(c *Conn, r io.Reader) (int, error)

	// dropPins sees to it that what c still holds goes when c is collected.
	dropPins(c *Conn)

	// For callers that keep it from being finished.
	closeRead() error
	closeWrite() error
	setDeadlines(t time.Time, from, to direction)
	setBusyPoll(d time.Duration)
	growReadBuffer(bytes int)
	configureKeepAlive(change func(old net.KeepAliveConfig) net.KeepAliveConfig)

	// shut is Close, by a reset if that is to be: it wakes who waits, and says goodbye. When
	// nobody is inside any more finish delivers what is left, as long as linger says, and
	// calls c.gone when that is done.
	shut(reset bool)
	finish(linger time.Duration, c *Conn)

	// These may be called at any time.
	stats() ConnStats
	describe(i *ConnInfo)
	deviceName() string
	hasChecksum() bool
	lane() (id, link uint64) // 0 where there is none
}

var _ carrier = (*stream)(nil)

func (s *stream) read(p []byte) (int, error)      { return s.recv.read(p) }
func (s *stream) await(limit int) ([]byte, error) { return s.recv.await(limit) }
func (s *stream) write(p []byte) (int, error)     { return s.send.write(p) }

func (s *stream) setBusyPoll(d time.Duration) { s.busyPoll.Store(int64(d)) }
func (s *stream) deviceName() string          { return s.ep.device }
func (s *stream) lane() (id, link uint64)     { return 0, 0 }
func (s *stream) hasChecksum() bool           { return s.ep.checksum }
