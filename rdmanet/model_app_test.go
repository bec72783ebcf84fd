package rdmanet

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// What the application of an end does: a thread that reads, one that writes, one for
// all other calls, and after Close what Close leaves behind.

// idle is where a thread is between two calls.
func (e *modelEnd) idle() {
	if t := e.m.current; t != nil {
		t.hist = 0
	}
	e.m.yield(placeIdle)
}

// mayBegin says whether a thread that is in no call may begin one. When all is to come
// to its end there is nothing to do for its own sake. And where requests complete late
// the application happens to write nothing while the send queue is full, so that nobody
// but the reader waits for room.
func (e *modelEnd) mayBegin(act int) bool {
	if e.m.set.late && act == actWriter && !e.m.settling {
		return e.conn.send.sq.room() >= messageRoom
	}
	if act != actControl || !e.m.settling || e.m.explored != nil && e.plan.close > 0 {
		return true
	}
	return !e.closed && e.threads[actReader].done && (e.threads[actWriter].done || e.closedRead || e.readEnd != io.EOF)
}

// amount chooses a number of bytes.
func (e *modelEnd) amount() int {
	c := e.m.c
	if e.m.explored != nil {
		return e.plan.unit
	}
	if e.m.set.small {
		return 1 + c.intn(16)
	}
	switch c.intn(4) {
	case 0:
		return 1 + c.intn(64)
	case 1:
		return 1 + c.intn(1024)
	case 2:
		return 1 + c.intn(4096)
	}
	return 1 + c.intn(modelMost)
}

// reader reads to the end.
func (e *modelEnd) reader() {
	c, m := e.conn, e.m
	buf := e.buf[:modelMost]
	for {
		e.idle()
		var n int
		var err error
		size := modelMost
		if m.explored == nil && (!m.settling || m.c.intn(4) == 0) {
			size = e.amount()
		}
		if m.explored == nil && m.c.intn(8) == 0 {
			m.tell("calls Peek(%d)", size)
			var b []byte
			if b, err = c.Peek(size); err == nil {
				e.got(b)
				e.read += uint64(len(b))
				e.idle()
				n, err = c.Discard(len(b))
				if err == nil && n != len(b) {
					m.fail("Discard(%d) returns %d", len(b), n)
				}
				if err != nil {
					e.read -= uint64(len(b) - n)
				}
			}
		} else {
			m.tell("calls Read(%d)", size)
			n, err = c.Read(buf[:size])
			e.got(buf[:n])
			e.read += uint64(n)
		}
		m.tell("has read %d: %v", n, err)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			_ = c.SetReadDeadline(time.Time{})
			continue
		}
		if err != nil {
			e.readEnd = err
			e.judgeRead(err)
			return
		}
	}
}

// got compares bytes with those that the peer wrote.
func (e *modelEnd) got(b []byte) {
	if !bytes.Equal(b, e.peer.stream(e.read, len(b))) {
		e.m.fail("invariant 1: what %v reads from %d on, %d bytes, is not what was written", e, e.read, len(b))
	}
}

// writer writes until all comes to its end, and then ends its stream.
func (e *modelEnd) writer() {
	c, m := e.conn, e.m
	scratch := e.buf[modelMost:]
	for calls := 0; ; calls++ {
		e.idle()
		if m.explored == nil && m.settling || m.explored != nil && calls == e.plan.writes {
			break
		}
		size := e.amount()
		var err error
		if m.set.commits && m.c.intn(8) == 0 {
			m.tell("calls Reserve(%d)", size)
			var b []byte
			if b, err = c.Reserve(size); err == nil {
				copy(b, e.stream(e.wrote, size))
				e.idle()
				if err = c.Commit(size); err == nil {
					e.wrote += uint64(size)
				} else {
					e.unsure = true
				}
			}
		} else {
			m.tell("calls Write(%d)", size)
			copy(scratch, e.stream(e.wrote, size))
			var n int
			n, err = c.Write(scratch[:size])
			clear(scratch[:size]) // it is the application's again
			e.wrote += uint64(n)
			if (n < size) != (err != nil) {
				m.fail("Write(%d) of %v returns %d, %v", size, e, n, err)
			}
		}
		m.tell("has written: %v", err)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			_ = c.SetWriteDeadline(time.Time{})
			if !e.unsure {
				continue
			}
			break
		}
		if err != nil {
			e.judgeWrite(err)
			return
		}
	}
	if !e.plan.open {
		e.closeWrite()
	}
}

func (e *modelEnd) closeWrite() {
	e.m.tell("calls CloseWrite")
	e.closedWrite = true
	if err := e.conn.CloseWrite(); err != nil && !errors.Is(err, syscall.ENOTCONN) && !errors.Is(err, net.ErrClosed) {
		e.m.fail("CloseWrite of %v: %v", e, err)
	}
}

// control makes the other calls.
func (e *modelEnd) control() {
	c, m := e.conn, e.m
	due := func(at int) bool { return at > 0 && m.steps >= at }
	for {
		e.idle()
		switch {
		case due(e.plan.fin):
			e.plan.fin = 0
			e.closeWrite()
		case due(e.plan.closeRead):
			e.plan.closeRead = 0
			m.tell("calls CloseRead")
			e.closedRead = true
			_ = c.CloseRead() // fails where the connection is over
		case m.settling || due(e.plan.close):
			if e.plan.abort {
				_ = c.SetLinger(0)
			}
			m.tell("calls Close")
			e.closed = true
			if err := c.Close(); err != nil {
				m.fail("Close of %v: %v", e, err)
			}
			return
		default:
			switch m.c.intn(7) {
			case 0:
				m.tell("a read deadline passes")
				_ = c.SetReadDeadline(longPast)
			case 1:
				m.tell("a write deadline passes")
				_ = c.SetWriteDeadline(longPast)
			case 2:
				_ = c.SetDeadline(time.Time{})
			case 3:
				m.tell("calls SetReadBuffer")
				_ = c.SetReadBuffer(MinReadBuffer << m.c.intn(6))
			case 4:
				if !m.set.beats {
					break
				}
				m.tell("asks for a sign of life")
				if _, err := c.send.answered(); err == nil {
					c.send.ask()
				}
			case 5:
				_ = c.Stats()
			case 6:
				if c.send.gathered.waits {
					m.tell("has written nothing for a while")
					c.send.tick()
				}
			}
		}
	}
}

// drain is what Conn.exit does for who drops the last reference.
func (e *modelEnd) drain() {
	c := e.conn
	if !c.life.decref() {
		e.m.fail("a call is inside %v that has returned", e)
	}
	if !c.ep.sameHost || !c.settle() {
		c.drain(defaultDrain)
	}
	c.teardown()
	e.finished = true
	if n := e.dev.open.Load(); n != 0 {
		e.m.fail("%d objects of %v are left", n, e)
	}
}
