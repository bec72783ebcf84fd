package rdmanet

import (
	"net"
	"syscall"
	"time"
)

// epoch is the zero of the monotonic times kept in atomics.
var epoch = time.Now()

// SetDeadline sets the read and the write deadline, as net.Conn describes. It allocates nothing.
func (c *Conn) SetDeadline(t time.Time) error {
	return c.setDeadlines(t, dirRead, dirWrite)
}

// SetReadDeadline sets when Reads that wait, now or later, give up with os.ErrDeadlineExceeded.
func (c *Conn) SetReadDeadline(t time.Time) error {
	return c.setDeadlines(t, dirRead, dirRead)
}

// SetWriteDeadline sets when Writes that wait, now or later, give up with os.ErrDeadlineExceeded.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	return c.setDeadlines(t, dirWrite, dirWrite)
}

func (c *Conn) setDeadlines(t time.Time, from, to direction) error {
	if !c.ok() {
		return syscall.EINVAL
	}
	if !c.life.incref() {
		return c.setClosed()
	}
	c.stream.setDeadlines(t, from, to)
	c.exit(c.life.decref())
	return nil
}

// setClosed is the error of a setting on a closed Conn, which in package net names
// the local end only.
func (c *Conn) setClosed() error {
	return opError(opSet, c.network.String(), nil, c.localAddr(), net.ErrClosed)
}
