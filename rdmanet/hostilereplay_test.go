//go:build linux

package rdmanet

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
)

// ask sends the recorded request to l, from the name it was recorded with.
func (r *recording) ask(t *testing.T, l *Listener) *net.UnixConn {
	t.Helper()
	s, err := net.DialUnix("unixpacket", r.name, wildSocket(l))
	require.NoError(t, err)
	r.send(t, s)
	return s
}

// at returns the recording as it would be from another port, and that port's name.
func (r *recording) at(port int) *recording {
	const offset = 36 // of the port in a request
	msg := append([]byte(nil), r.msg...)
	binary.LittleEndian.PutUint16(msg[offset:], uint16(port))
	return &recording{msg, r.rights, &net.UnixAddr{Net: r.name.Net, Name: "@rdmanet/soft0/c/127.0.0.1/" + strconv.Itoa(port)}}
}

// wildListener listens on the wildcard, so that a captor can listen in front of it.
func wildListener(t *testing.T, lc ListenConfig) *Listener {
	t.Helper()
	lc.Device = "soft0"
	l, err := lc.listen(context.Background(), "rdma4", "0.0.0.0:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	require.NoError(t, l.SetDeadline(time.Now().Add(lasting)))
	return l
}

// requireServed sees that an honest dialer of c's address is served, however many
// others there are, and returns how long that took.
func (c *captor) requireServed(l *Listener) time.Duration {
	c.t.Helper()
	began := time.Now()
	require.NoError(c.t, l.SetDeadline(time.Now().Add(lasting)))
	d := Dialer{Device: "soft0", Timeout: lasting}
	client, err := d.dial(context.Background(), "rdma", c.at.String())
	require.NoError(c.t, err)
	defer client.Close()
	for {
		server, err := l.AcceptConn()
		require.NoError(c.t, err)
		mine := server.RemoteAddr().String() == client.LocalAddr().String()
		require.NoError(c.t, server.Close())
		if mine {
			return time.Since(began)
		}
	}
}

// TestHostileReplay has a stranger send a dialer's request again.
func TestHostileReplay(t *testing.T) {
	onSoftware(t)
	confirm := func(t *testing.T, s *net.UnixConn, r *recording) {
		t.Helper()
		_, err := s.Write([]byte{4, r.msg[1]}) // of the version of the request
		require.NoError(t, err)
	}
	for name, do := range map[string]func(t *testing.T, l *Listener, r *recording){
		"from another port": func(t *testing.T, l *Listener, r *recording) {
			s, err := net.DialUnix("unixpacket", r.at(9999).name, wildSocket(l))
			require.NoError(t, err)
			r.send(t, s)
			stranger{s, t}.dropped()
			require.Equal(t, uint64(1), l.Stats().Malformed)
			require.NoError(t, s.Close())
		},
		"from no port": func(t *testing.T, l *Listener, r *recording) {
			s, err := net.DialUnix("unixpacket", nil, wildSocket(l))
			require.NoError(t, err)
			r.send(t, s)
			stranger{s, t}.dropped()
			require.Equal(t, uint64(1), l.Stats().Malformed)
			require.NoError(t, s.Close())
		},
		"to another listener": func(t *testing.T, _ *Listener, r *recording) {
			l := wildListener(t, ListenConfig{})
			s := r.ask(t, l)
			stranger{s, t}.dropped()
			require.Equal(t, uint64(1), l.Stats().Malformed)
			require.NoError(t, s.Close())
		},
		"twice at once": func(t *testing.T, l *Listener, r *recording) {
			s := r.ask(t, l)
			r.send(t, s)
			require.Eventually(t, func() bool { return l.Stats().Failed == 1 }, patience, time.Millisecond)
			require.NoError(t, s.Close())
		},
		"and confirms twice": func(t *testing.T, l *Listener, r *recording) {
			s := r.ask(t, l)
			confirm(t, s, r)
			victim, err := l.AcceptConn()
			require.NoError(t, err, "%+v", l.Stats())
			confirm(t, s, r)
			inTime(t, soon, "the end", func() { requireEnd(t, victim, syscall.ECONNRESET) })
			require.NoError(t, s.Close())
		},
		"and has a connection with nobody": func(t *testing.T, l *Listener, r *recording) {
			s := r.ask(t, l)
			confirm(t, s, r)
			victim, err := l.AcceptConn()
			require.NoError(t, err, "%+v", l.Stats())
			require.NoError(t, victim.SetDeadline(time.Now().Add(20*time.Millisecond)))
			_, err = victim.Write(make([]byte, 1<<20))
			require.Error(t, err)
			require.NoError(t, victim.SetDeadline(time.Time{}))
			require.NoError(t, s.Close())
			requireEnd(t, victim, syscall.ECONNRESET)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := wildListener(t, ListenConfig{})
			c := newCaptor(t, l)
			r := c.record()
			require.NoError(t, c.l.Close())
			do(t, l, r)
			c.requireServed(l)
		})
	}
}

// wildSocket is the socket behind a listener on the wildcard.
func wildSocket(l *Listener) *net.UnixAddr {
	return &net.UnixAddr{Net: "unixpacket", Name: "@rdmanet/soft0/" + strconv.Itoa(l.addr.Port) + "/*4"}
}

// footprint is what a process holds, its garbage collected.
type footprint struct {
	files       int
	heap, rings int64
}

func takeFootprint() footprint {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{len(leaktest.OpenFiles()), int64(m.HeapInuse + m.StackInuse), MemoryInUse()}
}

// TestHalfOpenTenThousand has ten thousand clients that do not go through with their
// handshake. What they cost has a bound, and honest ones get in among them.
func TestHalfOpenTenThousand(t *testing.T) {
	onSoftware(t)
	const attempts = 10_000
	// connect waits for a place in the kernel's queue of the listener.
	connect := func(t *testing.T, from, to *net.UnixAddr) *net.UnixConn {
		for {
			s, err := net.DialUnix("unixpacket", from, to)
			if err == nil {
				return s
			}
			require.True(t, errors.Is(err, syscall.EAGAIN), "%v", err)
			time.Sleep(time.Millisecond)
		}
	}
	for name, c := range map[string]struct {
		each  func(t *testing.T, l *Listener, r *recording, i int) *net.UnixConn
		held  int // clients that keep their end open
		most  int // handshakes that the listener holds
		rings int64
	}{
		// Of those that have said nothing 1,024 are kept, the latest.
		"say nothing": {func(t *testing.T, l *Listener, _ *recording, _ int) *net.UnixConn {
			return connect(t, nil, wildSocket(l))
		}, 1500, 1024, 0},
		// The places of those that have asked are the backlog's, and with them go rings.
		"ask and do not confirm": {func(t *testing.T, l *Listener, r *recording, i int) *net.UnixConn {
			r = r.at(10_000 + i)
			s, err := net.DialUnix("unixpacket", r.name, wildSocket(l))
			for i < 500 && errors.Is(err, syscall.EAGAIN) { // more than there are places come in
				time.Sleep(time.Millisecond)
				s, err = net.DialUnix("unixpacket", r.name, wildSocket(l))
			}
			// It is too much for the kernel already, or another process has the port.
			if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EADDRINUSE) {
				return nil
			}
			require.NoError(t, err)
			_, _, err = s.WriteMsgUnix(r.msg, r.rights, nil)
			if err != nil {
				require.ErrorIs(t, err, syscall.EPIPE)
			}
			return s
		}, 1500, 4 * 128, 128 * (DefaultReadBuffer + 4096)},
	} {
		t.Run(name, func(t *testing.T) {
			l := wildListener(t, ListenConfig{Backlog: 128, HandshakeTimeout: time.Hour})
			cap := newCaptor(t, l)
			r := cap.record()
			require.NoError(t, cap.l.Close())
			alone := cap.requireServed(l)
			before := takeFootprint()
			var theirs []*net.UnixConn
			drop := func(keep int) {
				for len(theirs) > keep {
					assert.NoError(t, theirs[0].Close())
					theirs = theirs[1:]
				}
			}
			defer func() { drop(0) }()
			for i := range attempts {
				if s := c.each(t, l, r, i); s != nil {
					theirs = append(theirs, s)
				}
				drop(c.held)
				if i%2500 == 2499 {
					var now footprint
					var s ListenerStats
					// Those who gave way may have yet to be torn down.
					require.Eventually(t, func() bool {
						now, s = takeFootprint(), l.Stats()
						return s.HalfOpen <= 1024 &&
							now.files-before.files <= len(theirs)+8*c.most &&
							now.heap-before.heap <= 64<<20 &&
							now.rings-before.rings <= c.rings
					}, patience, 10*time.Millisecond, "%d held, %+v before", len(theirs), before)
					took := cap.requireServed(l)
					t.Logf("after %d: %d descriptors, %d KiB of heap, %d KiB of rings, %+v; an honest one served after %v, alone %v", i+1,
						now.files-before.files-len(theirs), (now.heap-before.heap)>>10, (now.rings-before.rings)>>10, s, took, alone)
				}
			}
			require.Eventually(t, func() bool { return l.Stats().Evicted > 0 }, patience, time.Millisecond)
		})
	}
}
