package rdmanet

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// endOf is what a call does with a zero value: the error it returns, or that it panics and
// with what.
func endOf(call func() error) (s string) {
	defer func() {
		if p := recover(); p != nil {
			s = fmt.Sprint("panic: ", p)
		}
	}()
	return fmt.Sprint(call())
}

// netConn is what *net.TCPConn and *Conn have in common.
type netConn interface {
	net.Conn
	io.ReaderFrom
	io.WriterTo
	CloseRead() error
	CloseWrite() error
	SetLinger(int) error
	SetNoDelay(bool) error
	SetKeepAlive(bool) error
	SetKeepAlivePeriod(time.Duration) error
	SetKeepAliveConfig(net.KeepAliveConfig) error
	SetReadBuffer(int) error
	SetWriteBuffer(int) error
}

// netListener is what *net.TCPListener and *Listener have in common.
type netListener interface {
	net.Listener
	SetDeadline(time.Time) error
}

// TestZeroValuesAsOfNet calls everything beside package net with nil contexts, nil pointers
// and zero values: what package net does is right, but for what it does by oversight.
func TestZeroValuesAsOfNet(t *testing.T) {
	type pair struct{ theirs, ours func() error }
	var noContext context.Context
	dial := func(d interface {
		DialContext(context.Context, string, string) (net.Conn, error)
	}, network, address string) func() error {
		return func() error { _, err := d.DialContext(noContext, network, address); return err }
	}
	listen := func(lc interface {
		Listen(context.Context, string, string) (net.Listener, error)
	}, address string) func() error {
		return func() error {
			l, err := lc.Listen(noContext, "tcp", address)
			if err == nil {
				err = l.Close()
			}
			return err
		}
	}
	var none *net.TCPAddr
	calls := map[string]pair{
		"DialContext(nil)":                 {dial(new(net.Dialer), "tcp", "127.0.0.1:9"), dial(new(Dialer), "tcp", "127.0.0.1:9")},
		"DialContext(nil) of no network":   {dial(new(net.Dialer), "quic", "127.0.0.1:9"), dial(new(Dialer), "quic", "127.0.0.1:9")},
		"DialContext(nil) of no address":   {dial(new(net.Dialer), "tcp", ""), dial(new(Dialer), "tcp", "")},
		"Listen(nil)":                      {listen(new(net.ListenConfig), "127.0.0.1:0"), listen(new(ListenConfig), "127.0.0.1:0")},
		"Listen(nil) of no port":           {listen(new(net.ListenConfig), "127.0.0.1"), listen(new(ListenConfig), "127.0.0.1")},
		"Dial of nothing":                  {func() error { _, err := net.Dial("tcp", ""); return err }, func() error { _, err := Dial("tcp", ""); return err }},
		"Dial in the past":                 {dialIn(&net.Dialer{Timeout: -1}), dialIn(&Dialer{Timeout: -1})},
		"Dial from a nil address":          {dialIn(&net.Dialer{LocalAddr: none, Timeout: -1}), dialIn(&Dialer{LocalAddr: none, Timeout: -1})},
		"DialTimeout of nothing":           {func() error { _, err := net.DialTimeout("tcp", "", time.Minute); return err }, func() error { _, err := DialTimeout("tcp", "", time.Minute); return err }},
		"Listen on no such address, twice": {func() error { _, err := net.Listen("tcp", "x"); return err }, func() error { _, err := Listen("tcp", "x"); return err }},
	}
	onConn := map[string]func(netConn) error{
		"Read":               func(c netConn) error { _, err := c.Read(make([]byte, 1)); return err },
		"Read of nothing":    func(c netConn) error { _, err := c.Read(nil); return err },
		"Write":              func(c netConn) error { _, err := c.Write([]byte("x")); return err },
		"ReadFrom":           func(c netConn) error { _, err := c.ReadFrom(strings.NewReader("x")); return err },
		"WriteTo":            func(c netConn) error { _, err := c.WriteTo(new(bytes.Buffer)); return err },
		"Close":              netConn.Close,
		"CloseRead":          netConn.CloseRead,
		"CloseWrite":         netConn.CloseWrite,
		"LocalAddr":          func(c netConn) error { return fmt.Errorf("%v", c.LocalAddr() == nil) },
		"RemoteAddr":         func(c netConn) error { return fmt.Errorf("%v", c.RemoteAddr() == nil) },
		"SetDeadline":        func(c netConn) error { return c.SetDeadline(time.Time{}) },
		"SetReadDeadline":    func(c netConn) error { return c.SetReadDeadline(time.Time{}) },
		"SetWriteDeadline":   func(c netConn) error { return c.SetWriteDeadline(time.Time{}) },
		"SetLinger":          func(c netConn) error { return c.SetLinger(0) },
		"SetNoDelay":         func(c netConn) error { return c.SetNoDelay(true) },
		"SetKeepAlive":       func(c netConn) error { return c.SetKeepAlive(true) },
		"SetKeepAlivePeriod": func(c netConn) error { return c.SetKeepAlivePeriod(1) },
		"SetKeepAliveConfig": func(c netConn) error { return c.SetKeepAliveConfig(net.KeepAliveConfig{}) },
		"SetReadBuffer":      func(c netConn) error { return c.SetReadBuffer(1) },
		"SetWriteBuffer":     func(c netConn) error { return c.SetWriteBuffer(1) },
		"SyscallConn": func(c netConn) error {
			if tcp, ok := c.(*net.TCPConn); ok {
				_, err := tcp.SyscallConn()
				return err
			}
			_, err := c.(*Conn).SyscallConn()
			return err
		},
	}
	for name, call := range onConn {
		calls["nil Conn "+name] = pair{func() error { return call((*net.TCPConn)(nil)) }, func() error { return call((*Conn)(nil)) }}
		calls["zero Conn "+name] = pair{func() error { return call(new(net.TCPConn)) }, func() error { return call(new(Conn)) }}
	}
	onListener := map[string]func(netListener) error{
		"Accept":      func(l netListener) error { _, err := l.Accept(); return err },
		"Close":       netListener.Close,
		"SetDeadline": func(l netListener) error { return l.SetDeadline(time.Time{}) },
	}
	for name, call := range onListener {
		calls["nil Listener "+name] = pair{func() error { return call((*net.TCPListener)(nil)) }, func() error { return call((*Listener)(nil)) }}
		calls["zero Listener "+name] = pair{func() error { return call(new(net.TCPListener)) }, func() error { return call(new(Listener)) }}
	}
	for name, p := range calls {
		t.Run(name, func(t *testing.T) {
			want := endOf(p.theirs)
			switch {
			case !strings.HasPrefix(want, "panic: runtime error: "): // at a nil pointer's embedded field
			case strings.HasSuffix(name, "Addr"):
				want = "true"
			default:
				want = syscall.EINVAL.Error()
			}
			require.Equal(t, want, endOf(p.ours))
		})
	}
}

func dialIn(d interface {
	Dial(network, address string) (net.Conn, error)
}) func() error {
	return func() error { _, err := d.Dial("tcp", "127.0.0.1:9"); return err }
}

// TestZeroValuesBeyondNet: what package net has not, and its panics that tell nobody anything.
func TestZeroValuesBeyondNet(t *testing.T) {
	for _, c := range []*Conn{nil, new(Conn)} {
		require.Equal(t, "<nil> ", fmt.Sprint(c.LocalAddr(), " ", c.Device()))
		require.Zero(t, c.Stats())
		require.False(t, c.Checksum())
		require.False(t, IsRDMA(c))
		for name, call := range map[string]func() error{
			"Peek":        func() error { _, err := c.Peek(1); return err },
			"Discard":     func() error { _, err := c.Discard(1); return err },
			"Reserve":     func() error { _, err := c.Reserve(1); return err },
			"Commit":      func() error { return c.Commit(1) },
			"SetBusyPoll": func() error { return c.SetBusyPoll(0) },
		} {
			require.Equal(t, "invalid argument", endOf(call), name)
		}
	}
	for _, l := range []*Listener{nil, new(Listener)} {
		require.Nil(t, l.Addr())
		require.Zero(t, l.Stats())
		require.Nil(t, l.Fallback())
		_, err := l.AcceptConn()
		require.EqualError(t, err, "invalid argument")
	}
}

// TestBadBounds: what is out of bounds is an error that names the option.
func TestBadBounds(t *testing.T) {
	for text, lc := range map[string]ListenConfig{
		"ListenConfig.Backlog -1 is out of bounds: choose 1 or more, or 0 for the system's":   {Backlog: -1},
		"ListenConfig.HandshakeTimeout -1s is out of bounds: choose more than 0, or 0 for 5s": {HandshakeTimeout: -time.Second},
		"ListenConfig.ReadBuffer 1 is out of bounds: choose 4096 to 67108864 bytes":           {ReadBuffer: 1},
		"ListenConfig.MaxReadBuffer 4096 is smaller than ReadBuffer 8192":                     {ReadBuffer: 8192, MaxReadBuffer: 4096},
		"ListenConfig.Retries -1 is out of bounds: choose 1 to 7, or 0 for the dialer's":      {Retries: -1},
		"ListenConfig.AckTimeout -1s is out of bounds: choose up to 2h26m36.093022208s":       {AckTimeout: -time.Second},
	} {
		for _, network := range []string{"rdma", "tcp"} {
			_, err := lc.Listen(context.Background(), network, "127.0.0.1:0")
			require.EqualError(t, err, "listen "+network+": "+text)
			require.ErrorIs(t, err, syscall.EINVAL)
		}
	}
	for text, d := range map[string]Dialer{
		"Dialer.ReadBuffer 1 is out of bounds: choose 4096 to 67108864 bytes":        {ReadBuffer: 1},
		"Dialer.MaxReadBuffer -1 is out of bounds: choose 4096 to 67108864 bytes":    {MaxReadBuffer: -1},
		"Dialer.Retries 8 is out of bounds: choose 1 to 7, or below 0 for none":      {Retries: 8},
		"Dialer.AckTimeout 3h0m0s is out of bounds: choose up to 2h26m36.093022208s": {AckTimeout: 3 * time.Hour},
	} {
		for _, network := range []string{"rdma", "tcp"} {
			_, err := d.Dial(network, "127.0.0.1:9")
			require.EqualError(t, err, "dial "+network+": "+text)
			require.ErrorIs(t, err, syscall.EINVAL)
		}
	}
}
