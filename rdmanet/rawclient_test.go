//go:build linux

package rdmanet

import (
	"context"
	"io"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
)

// A rawClient is a client of the Unix socket behind a listener of the software
// device that may never have heard of RDMA.
type rawClient struct {
	*net.UnixConn
	t testing.TB
}

// socketName is the abstract Unix socket behind an address of the software device.
func socketName(at *net.TCPAddr) *net.UnixAddr {
	return &net.UnixAddr{Net: "unixpacket", Name: "@rdmanet/soft0/" + strconv.Itoa(at.Port) + "/" + at.IP.String()}
}

// newRawClient connects to the socket behind l.
func newRawClient(t testing.TB, l *Listener) rawClient {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, socketName(l.addr))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return rawClient{c, t}
}

// say sends one message with n descriptors.
func (s rawClient) say(b []byte, n int) {
	s.t.Helper()
	var fds []int
	for range n {
		fds = append(fds, 0)
	}
	var oob []byte
	if n > 0 {
		oob = syscall.UnixRights(fds...)
	}
	_, _, err := s.WriteMsgUnix(b, oob, nil)
	require.NoError(s.t, err)
}

// dropped waits until the listener has hung up, and returns what it said before.
func (s rawClient) dropped() []byte {
	s.t.Helper()
	require.NoError(s.t, s.SetReadDeadline(time.Now().Add(patience)))
	buf := make([]byte, 4096)
	n, err := s.Read(buf)
	if err == nil && n > 0 {
		m, err := s.Read(make([]byte, 1))
		if m != 0 || err == nil {
			s.t.Fatalf("the listener said more than one thing: %d, %v", m, err)
		}
		requireHangup(s.t, err)
		return buf[:n]
	}
	requireHangup(s.t, err)
	return nil
}

func requireHangup(t testing.TB, err error) {
	t.Helper()
	if err != io.EOF {
		require.ErrorIs(t, err, syscall.ECONNRESET)
	}
}

// rawListener has a listener with Accept running: every result is sent.
func rawListener(t testing.TB, lc ListenConfig) (*Listener, <-chan dialled) {
	t.Helper()
	lc.Device = "soft0"
	l, err := lc.listen(context.Background(), "rdma", loopbackAddr)
	require.NoError(t, err)
	accepted := make(chan dialled, 16)
	go func() {
		defer close(accepted)
		for {
			c, err := l.AcceptConn()
			accepted <- dialled{c, err}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		last := <-accepted
		require.ErrorIs(t, last.err, net.ErrClosed, "Accept returned something for a raw client")
	})
	return l, accepted
}

// requireAccepted sees that an honest dialer is served.
func requireAccepted(t testing.TB, l *Listener, accepted <-chan dialled) {
	t.Helper()
	d := Dialer{Device: "soft0", Timeout: patience}
	c, err := d.dial(context.Background(), "rdma", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	s := <-accepted
	require.NoError(t, s.err)
	defer s.conn.Close()
	require.Equal(t, c.LocalAddr().String(), s.conn.RemoteAddr().String())
	_, err = c.Write([]byte("hello"))
	require.NoError(t, err)
	require.Equal(t, "hello", string(readFull(t, s.conn, 5)))
}

// TestRawClientsGarbage has clients that say something else than a request.
func TestRawClientsGarbage(t *testing.T) {
	request := make([]byte, 200) // the beginning of a request, as far as anybody can tell
	request[0], request[1] = 1, 1
	for _, g := range []struct {
		name string
		msg  []byte
		fds  int
	}{
		{name: "text", msg: []byte("GET / HTTP/1.1\r\n\r\n")},
		{name: "one byte", msg: []byte{1}},
		{name: "a byte of zero", msg: []byte{0}},
		{name: "half a request", msg: request[:20]},
		{name: "a request of zeros", msg: request},
		{name: "a request of another version", msg: []byte{1, 99, 0, 0, 0, 0, 0, 0}},
		{name: "a reply", msg: append([]byte{2, 1}, request...)},
		{name: "a confirmation", msg: []byte{4, 1}},
		{name: "a message of the link", msg: []byte{32}},
		{name: "a long message", msg: make([]byte, 4096)},
		{name: "a message too long", msg: make([]byte, 65536)},
		{name: "text with descriptors", msg: []byte("take these"), fds: 8},
		{name: "too many descriptors", msg: request, fds: 9},
		{name: "as many descriptors as there can be", msg: request, fds: 253},
	} {
		t.Run(g.name, func(t *testing.T) {
			l, accepted := rawListener(t, ListenConfig{})
			requireAccepted(t, l, accepted)
			files := len(leaktest.OpenFiles())
			for range 3 {
				s := newRawClient(t, l)
				s.say(g.msg, g.fds)
				s.dropped()
				require.NoError(t, s.Close())
			}
			require.Equal(t, uint64(3), l.Stats().Malformed)
			require.Eventually(t, func() bool { // it hangs up before it closes what it was given
				return len(leaktest.OpenFiles()) <= files
			}, patience, time.Millisecond)
			requireAccepted(t, l, accepted)
			s := l.Stats()
			require.Equal(t, ListenerStats{Accepted: 2, Established: 2, Requests: 2, Malformed: 3}, s)
		})
	}
}

// TestRawClientsLeave has clients that hang up.
func TestRawClientsLeave(t *testing.T) {
	for name, do := range map[string]func(s rawClient){
		"at once":                func(rawClient) {},
		"for writing":            func(s rawClient) { _ = s.CloseWrite(); s.dropped() },
		"with an empty message":  func(s rawClient) { _, _, _ = s.WriteMsgUnix(nil, nil, nil); s.dropped() },
		"with data to be read":   func(s rawClient) { _ = s.CloseRead() },
		"after an empty message": func(s rawClient) { _, _, _ = s.WriteMsgUnix(nil, nil, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			l, accepted := rawListener(t, ListenConfig{})
			for range 10 {
				s := newRawClient(t, l)
				do(s)
				require.NoError(t, s.Close())
			}
			requireAccepted(t, l, accepted)
			// They were accepted before the honest one, but a leaver is counted by a
			// goroutine of its own.
			require.Eventually(t, func() bool { return l.Stats().Failed == 10 }, patience, time.Millisecond, "%+v", l.Stats())
		})
	}
}

// TestRawClientsSilent has clients that say nothing until they are dropped.
func TestRawClientsSilent(t *testing.T) {
	mostlyWaits(t)
	// Those who are not silent have that long, too.
	timeout := 5 * soon
	l, accepted := rawListener(t, ListenConfig{HandshakeTimeout: timeout})
	var silent []rawClient
	for range 20 {
		silent = append(silent, newRawClient(t, l))
	}
	requireAccepted(t, l, accepted)
	began := time.Now()
	for _, s := range silent {
		require.Empty(t, s.dropped())
	}
	promise(t, "the end of those who are silent", time.Since(began), timeout+soon)
	s := l.Stats()
	require.Equal(t, uint64(20), s.TimedOut)
	require.Zero(t, s.HalfOpen)
	requireAccepted(t, l, accepted)
}

// TestRawClientsHundred has as many half-open clients as there should ever be:
// the next dialer, an honest one, is served beside them.
func TestRawClientsHundred(t *testing.T) {
	l, accepted := rawListener(t, ListenConfig{Backlog: 1})
	before := MemoryInUse()
	var clients []rawClient
	for range 100 {
		clients = append(clients, newRawClient(t, l))
	}
	requireAccepted(t, l, accepted)
	require.Equal(t, 100, l.Stats().HalfOpen)
	for range 10 {
		requireAccepted(t, l, accepted)
	}
	// What the honest ones took goes when their ends have met.
	require.Eventually(t, func() bool { return MemoryInUse() <= before }, patience, time.Millisecond, "half-open clients cost rings")
	for _, s := range clients[:50] {
		require.NoError(t, s.Close())
	}
	requireAccepted(t, l, accepted)
}

// TestRawClientsAtClose has a listener closed while clients hang on it.
func TestRawClientsAtClose(t *testing.T) {
	l, err := (&ListenConfig{Device: "soft0"}).listen(context.Background(), "rdma", loopbackAddr)
	require.NoError(t, err)
	s := newRawClient(t, l)
	inTime(t, soon, "Close", func() { assert.NoError(t, l.Close()) })
	s.dropped()
	_, err = net.DialUnix("unixpacket", nil, socketName(l.addr))
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// TestReadStatsAfterClose: what Accept returns of a listener that leaves counts, though that is closed, and
// what clients did whom the connection manager has counted counts on.
func TestReadStatsAfterClose(t *testing.T) {
	onSoftware(t)
	l, err := (&ListenConfig{ReusePort: true, Device: "soft0", Logger: quiet}).listen(context.Background(), "rdma", loopbackAddr)
	require.NoError(t, err)
	defer l.Close()
	before, mine := ReadStats().Listening, l.Stats()
	s := newRawClient(t, l)
	s.say([]byte("nonsense"), 0)
	s.dropped()
	require.NoError(t, s.Close())
	require.Equal(t, mine.Malformed+1, l.Stats().Malformed)
	require.NoError(t, l.Close())
	l.accepted.Add(1) // as Accept does then
	require.Equal(t, mine.Malformed+1, l.Stats().Malformed)
	require.Equal(t, mine.Accepted+1, l.Stats().Accepted)
	after := ReadStats().Listening
	require.Equal(t, before.Malformed+1, after.Malformed)
	require.Equal(t, before.Accepted+1, after.Accepted)
}
