package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
)

// hookedNet is src, package net's dial.go, with DialContext and Listen handing TCP
// over to what DialOver and ListenOver say. Line numbers stay as they are.
func hookedNet(src []byte) ([]byte, error) {
	src, err := hooked(src, "Dialer", "DialContext", "DialOver", "Conn")
	if err != nil {
		return nil, err
	}
	return hooked(src, "ListenConfig", "Listen", "ListenOver", "Listener")
}

// hooked has a method, of three arguments and two results, first look at a hook.
func hooked(src []byte, recv, method, hook, result string) ([]byte, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "net/dial.go", src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	want := fmt.Sprintf("func(ctx context.Context, network, address string) (%s, error)", result)
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != method || f.Recv == nil || types.ExprString(f.Recv.List[0].Type) != "*"+recv {
			continue
		}
		if len(f.Recv.List[0].Names) != 1 || types.ExprString(f.Type) != want {
			return nil, fmt.Errorf("net/dial.go: method %s of %s is %s now, not %s: hook.go must learn it",
				method, recv, types.ExprString(f.Type), want)
		}
		at := fset.Position(f.Body.Lbrace).Offset + 1
		var out bytes.Buffer
		out.Write(src[:at])
		fmt.Fprintf(&out, " if %s != nil && isTCP(network) { return %[1]s(ctx, %s, network, address) };", hook, f.Recv.List[0].Names[0])
		out.Write(src[at:])
		return out.Bytes(), nil
	}
	return nil, fmt.Errorf("net/dial.go: no method %s of %s any more: hook.go must find what took its place", method, recv)
}

// netOver is a file more of package net.
const netOver = `package net

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"
)

// DialOver and ListenOver, once set, take the place of this package for TCP.
var (
	DialOver   func(ctx context.Context, d *Dialer, network, address string) (Conn, error)
	ListenOver func(ctx context.Context, lc *ListenConfig, network, address string) (Listener, error)
)

func isTCP(network string) bool {
	return network == "tcp" || network == "tcp4" || network == "tcp6"
}

// StreamConn is what a TCPConn can do that does not need a socket.
type StreamConn interface {
	Conn
	io.ReaderFrom
	io.WriterTo
	CloseRead() error
	CloseWrite() error
	SetKeepAlive(bool) error
	SetKeepAliveConfig(KeepAliveConfig) error
	SetKeepAlivePeriod(time.Duration) error
	SetLinger(int) error
	SetNoDelay(bool) error
	SetReadBuffer(int) error
	SetWriteBuffer(int) error
}

// StreamListener is the same of a TCPListener.
type StreamListener interface {
	Listener
	SetDeadline(time.Time) error
}

var (
	_ StreamConn     = (*TCPConn)(nil)
	_ StreamListener = (*TCPListener)(nil)
)

// DialStream is DialTCP for any StreamConn.
func DialStream(network string, laddr, raddr *TCPAddr) (StreamConn, error) {
	var d Dialer
	if laddr != nil {
		d.LocalAddr = laddr
	}
	c, err := d.Dial(network, raddr.String())
	if err != nil {
		return nil, err
	}
	return c.(StreamConn), nil
}

// knownError reports whether err is one of those by which programs know what happened.
func knownError(err error) bool {
	return errors.As(err, new(syscall.Errno)) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		err.Error() == errMissingAddress.Error()
}

// streamPort is the method port that tests add to TCPListener.
func streamPort(l Listener) string {
	_, port, _ := SplitHostPort(l.Addr().String())
	return port
}

// ListenStream is ListenTCP for any StreamListener.
func ListenStream(network string, laddr *TCPAddr) (StreamListener, error) {
	address := ":0"
	if laddr != nil {
		address = laddr.String()
	}
	l, err := Listen(network, address)
	if err != nil {
		return nil, err
	}
	return l.(StreamListener), nil
}
`

// overDir is where tests of the standard library find package over, below the module.
const overDir = "stdtest/over"

// overTest is a test file more of the package name, which sets the hooks.
func overTest(name string) []byte {
	return fmt.Appendf(nil, `package %s_test

import (
	"net"

	"github.com/rdmanet/go-rdmanet/%s"
)

func init() { net.DialOver, net.ListenOver = over.Dial, over.Listen }
`, name, overDir)
}
