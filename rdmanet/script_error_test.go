package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"syscall"
)

// errorFacts is all that a program can find out about an error without naming the
// transport.
type errorFacts struct {
	none      bool
	class     string // what errors.Is finds
	typ       string // the concrete type
	op        string // of the *net.OpError
	call      string // of an *os.SyscallError in the chain
	addrs     string // which of Source and Addr are set
	netErr    bool   // the net.Error interface
	timeout   bool
	temporary bool
	text      string // without addresses and network
}

func (f errorFacts) String() string {
	if f.none {
		return "ok"
	}
	return fmt.Sprintf("%s (%s op=%q call=%q addrs=%q net.Error=%t timeout=%t temporary=%t %q)",
		f.class, f.typ, f.op, f.call, f.addrs, f.netErr, f.timeout, f.temporary, f.text)
}

// causes are the errors that programs look for.
var causes = []struct {
	name string
	err  error
}{
	{"EOF", io.EOF},
	{"unexpected-EOF", io.ErrUnexpectedEOF},
	{"short-write", io.ErrShortWrite},
	{"closed", net.ErrClosed},
	{"deadline", os.ErrDeadlineExceeded},
	{"reset", syscall.ECONNRESET},
	{"pipe", syscall.EPIPE},
	{"refused", syscall.ECONNREFUSED},
	{"in-use", syscall.EADDRINUSE},
	{"not-available", syscall.EADDRNOTAVAIL},
	{"not-connected", syscall.ENOTCONN},
	{"invalid", syscall.EINVAL},
	{"canceled", context.Canceled},
	{"context-deadline", context.DeadlineExceeded},
	{"aborted", syscall.ECONNABORTED},
}

// classOf names the causes of an error, and the kind of one about an address.
func classOf(err error) string {
	if err == nil {
		return "ok"
	}
	var found []string
	for _, c := range causes {
		if errors.Is(err, c.err) {
			found = append(found, c.name)
		}
	}
	var dns *net.DNSError
	var addr *net.AddrError
	var unknown net.UnknownNetworkError
	switch {
	case errors.As(err, &dns):
		found = append(found, fmt.Sprintf("dns(notfound=%t)", dns.IsNotFound))
	case errors.As(err, &addr):
		found = append(found, "addr")
	case errors.As(err, &unknown):
		found = append(found, "unknown-network")
	}
	if len(found) == 0 {
		return "other"
	}
	return strings.Join(found, "+")
}

// facts describes an error of the world's transport.
func (w *world) facts(err error) errorFacts {
	if err == nil {
		return errorFacts{none: true, class: "ok"}
	}
	f := errorFacts{class: classOf(err), typ: fmt.Sprintf("%T", err), text: w.plain(err.Error())}
	if op, ok := err.(*net.OpError); ok {
		f.op = op.Op
		if op.Source != nil {
			f.addrs = "source"
		}
		if op.Addr != nil {
			f.addrs += " addr"
		}
	}
	var call *os.SyscallError
	if errors.As(err, &call) {
		f.call = call.Syscall
	}
	if ne, ok := err.(net.Error); ok {
		f.netErr, f.timeout = true, ne.Timeout()
		//lint:ignore SA1019 programs still ask
		f.temporary = ne.Temporary()
	}
	return f
}

var (
	networkWord = regexp.MustCompile(`\b(tcp|rdma)([0-9]?)\b`)
	addressWord = regexp.MustCompile(`([0-9]+\.[0-9]+\.[0-9]+\.[0-9]+|\[[0-9a-f:]+\]|):[0-9]+\b`)
)

// plain strips what names the transport or the run.
func (w *world) plain(text string) string {
	text = networkWord.ReplaceAllString(text, "NET$2")
	return addressWord.ReplaceAllString(text, "ADDR")
}

// matches reports whether rdmanet's error does for a program that knows TCP's. The
// text may go on where TCP's ends.
func (f errorFacts) matches(tcp errorFacts) bool {
	longer := strings.HasPrefix(f.text, tcp.text+": ") || strings.HasPrefix(f.text, tcp.text+" (")
	if !longer && f.text != tcp.text {
		return false
	}
	f.text = tcp.text
	return f == tcp
}
