package rdmanet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

// A verb is one call; the arguments are the words behind its name.
type verb func(w *world, args []string) (value string, err error)

// scriptVerbs are all verbs. Those of other files are added there.
var scriptVerbs = map[string]verb{
	"read":       scriptRead,
	"readfull":   scriptReadFull,
	"readall":    scriptReadAll,
	"write":      scriptWrite,
	"fill":       scriptFill,
	"big":        scriptBig,
	"same":       scriptSame,
	"until":      scriptUntil,
	"readfrom":   scriptReadFrom,
	"nobuffers":  scriptNoBuffers,
	"writeto":    scriptWriteTo,
	"closeread":  func(w *world, a []string) (string, error) { return "", w.tcpLike(a[0]).CloseRead() },
	"closewrite": func(w *world, a []string) (string, error) { return "", w.tcpLike(a[0]).CloseWrite() },
	"close":      scriptClose,
	"pause":      scriptPause,
	"ontime":     scriptOnTime,
	"arrived":    scriptArrived,
}

// tcpLike is what a *net.TCPConn has beyond a net.Conn.
type tcpLike interface {
	net.Conn
	io.ReaderFrom
	io.WriterTo
	CloseRead() error
	CloseWrite() error
	SetLinger(sec int) error
	SetNoDelay(bool) error
	SetKeepAlive(bool) error
	SetKeepAlivePeriod(time.Duration) error
	SetKeepAliveConfig(net.KeepAliveConfig) error
	SetReadBuffer(int) error
	SetWriteBuffer(int) error
}

var _, _ tcpLike = (*net.TCPConn)(nil), (*Conn)(nil)

func (w *world) tcpLike(name string) tcpLike { return w.conn(name).(tcpLike) }

// text turns a word of a script into bytes: "" is empty.
func text(word string) []byte {
	if word == `""` {
		return nil
	}
	return []byte(word)
}

func number(word string) int {
	n, err := strconv.Atoi(word)
	if err != nil {
		panic(err) // the script is wrong
	}
	return n
}

func scriptRead(w *world, a []string) (string, error) {
	b := make([]byte, number(a[1]))
	n, err := w.conn(a[0]).Read(b)
	return fmt.Sprintf("%d %q", n, b[:n]), err
}

func scriptReadFull(w *world, a []string) (string, error) {
	b := make([]byte, number(a[1]))
	n, err := io.ReadFull(w.conn(a[0]), b)
	return fmt.Sprintf("%d %q", n, b[:n]), err
}

// scriptReadAll reads to the end and keeps the count for "same".
func scriptReadAll(w *world, a []string) (string, error) {
	n, err := io.Copy(io.Discard, struct{ io.Reader }{w.conn(a[0])})
	w.count(a[0], "read", n)
	return "", err
}

func scriptWrite(w *world, a []string) (string, error) {
	n, err := w.conn(a[0]).Write(text(a[1]))
	return strconv.Itoa(n), err
}

// scriptFill writes until an error and keeps the count for "same".
func scriptFill(w *world, a []string) (string, error) {
	b := bytes.Repeat([]byte{'f'}, 64<<10)
	for {
		n, err := w.conn(a[0]).Write(b)
		w.count(a[0], "written", int64(n))
		if err != nil {
			return "", err
		}
	}
}

// tooBig is more than any buffer holds.
var tooBig = make([]byte, 32<<20)

// scriptBig is one Write of tooBig.
func scriptBig(w *world, a []string) (string, error) {
	n, err := w.conn(a[0]).Write(tooBig)
	w.count(a[0], "written", int64(n))
	return fmt.Sprintf("all=%t", n == len(tooBig)), err
}

// scriptSame compares what one end wrote with what the other read.
func scriptSame(w *world, a []string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if written, read := w.counts[a[0]+" written"], w.counts[a[1]+" read"]; written != read {
		return fmt.Sprintf("%d bytes written, %d read", written, read), errors.New("bytes were lost or made up")
	}
	return "", nil
}

func (w *world) count(name, what string, n int64) {
	w.mu.Lock()
	w.counts[name+" "+what] += n
	w.mu.Unlock()
}

// scriptUntil repeats a small Read or Write until it fails: between the cause and
// the failure there may be a few that do not.
func scriptUntil(w *world, a []string) (string, error) {
	c, b := w.conn(a[0]), make([]byte, 1)
	call := c.Read
	if a[1] == "write" {
		call = c.Write
	}
	for {
		if n, err := call(b); err != nil {
			return strconv.Itoa(n), err
		}
	}
}

// scriptReadFrom copies a text, or the source of a failure, to a connection.
func scriptReadFrom(w *world, a []string) (string, error) {
	var r io.Reader = strings.NewReader(string(text(a[1])))
	if a[1] == "broken" {
		r = brokenReader{}
	}
	n, err := w.tcpLike(a[0]).ReadFrom(r)
	return strconv.FormatInt(n, 10), err
}

// scriptNoBuffers writes buffers of nothing.
func scriptNoBuffers(w *world, a []string) (string, error) {
	n, err := (&net.Buffers{nil, {}}).WriteTo(w.conn(a[0]))
	return strconv.FormatInt(n, 10), err
}

var errBroken = errors.New("broken on purpose")

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errBroken }

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

// scriptWriteTo copies a connection to a buffer, or to a sink that fails.
func scriptWriteTo(w *world, a []string) (string, error) {
	if len(a) > 1 {
		n, err := w.tcpLike(a[0]).WriteTo(brokenWriter{})
		return strconv.FormatInt(n, 10), err
	}
	var b bytes.Buffer
	n, err := w.tcpLike(a[0]).WriteTo(&b)
	return fmt.Sprintf("%d %q", n, b.Bytes()), err
}

// scriptClose closes a connection or a listener.
func scriptClose(w *world, a []string) (string, error) {
	if c := w.conn(a[0]); c != nil {
		return "", c.Close()
	}
	return "", w.listener(a[0]).Close()
}

// scriptArrived waits until what a connection has sent is with the peer. TCP's of one
// host is there when Write returns.
func scriptArrived(w *world, a []string) (string, error) {
	c, ok := w.conn(a[0]).(*Conn)
	if !ok {
		return "", nil
	}
	arrived(w.t, c)
	for _, o := range w.conns { // the device of the other end may be late to tell
		if o := o.(*Conn); o != c && o.RemoteAddr().String() == c.LocalAddr().String() {
			require.Eventually(w.t, func() bool { return o.heardOf(c.Stats().BytesWritten) }, patience, time.Millisecond)
		}
	}
	return "", nil
}

// heardOf reports whether n bytes have arrived.
func (c *Conn) heardOf(n uint64) bool {
	i := c.info()
	return i.BytesRead+uint64(i.Unread) >= n
}

// scriptPause lets time pass where the passing of time is what is tested, and calls in the
// background get to where they wait.
func scriptPause(w *world, a []string) (string, error) {
	time.Sleep(slowly(duration(a[0])))
	for still := 0; still < 3; { // a Write waits several times before it does for good
		if !w.callsWait() {
			still = -1
		}
		still++
		time.Sleep(time.Millisecond)
	}
	return "", nil
}

// callsWait reports whether all steps in the background wait for something.
func (w *world) callsWait() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	buf := make([]byte, 1<<20)
	waiting := 0
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		id, state, _ := strings.Cut(stack, " [")
		if !w.background[id] {
			continue
		}
		for _, s := range []string{"IO wait", "select", "chan receive"} {
			if strings.HasPrefix(state, s) {
				waiting++
			}
		}
	}
	return w.starting == 0 && waiting == len(w.background)
}

// inBackground runs a step that callsWait looks at.
func (w *world) inBackground(st step) outcome {
	buf := make([]byte, 64)
	id, _, _ := strings.Cut(string(buf[:runtime.Stack(buf, false)]), " [")
	w.mu.Lock()
	w.starting--
	w.background[id] = true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.background, id)
		w.mu.Unlock()
	}()
	return w.do(st)
}

// scriptOnTime is where a script must have come so soon after it has set a deadline in the
// future, for what follows to mean anything. If not, the script is run again.
func scriptOnTime(w *world, a []string) (string, error) {
	w.void = time.Since(w.timed) > slowly(duration(a[0]))
	return "", nil
}
