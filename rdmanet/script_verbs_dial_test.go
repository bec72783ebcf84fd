package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
)

func init() {
	scriptVerbs["pair"] = scriptPair
	scriptVerbs["listen"] = scriptListen
	scriptVerbs["dial"] = scriptDial
	scriptVerbs["accept"] = scriptAccept
	scriptVerbs["addrs"] = scriptAddrs
	scriptVerbs["laddr"] = scriptListenAddr
}

// scriptPair makes the listener l, the client c and the server s.
func scriptPair(w *world, _ []string) (string, error) {
	if _, err := scriptListen(w, []string{"l", "any", "127.0.0.1:0"}); err != nil {
		return "", err
	}
	if _, err := scriptDial(w, []string{"c", "any", "@l"}); err != nil {
		return "", err
	}
	return scriptAccept(w, []string{"s", "l"})
}

func suffix(word string) string { return strings.TrimPrefix(word, "any") }

// address puts a word where the test is and replaces "@name" by the address of a listener, ":@name" by its port;
// "none" is the empty string.
func (w *world) address(word string) string {
	if word == "none" {
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	host, name, ok := strings.Cut(w.place.Replace(word), "@")
	if !ok {
		return host
	}
	if host == "" {
		return w.addrs[name]
	}
	_, port, _ := net.SplitHostPort(w.addrs[name])
	return host + port
}

// scriptListen: NAME NETWORK ADDRESS [free]
//
// Where it says free nobody of the script has the port. If somebody else of this host has, the
// script is run again.
func scriptListen(w *world, a []string) (string, error) {
	l, err := w.tr.listen(w.tr.network(suffix(a[1])), w.address(a[2]))
	if err != nil {
		if len(a) > 3 && a[3] == "free" {
			w.void = errors.Is(err, syscall.EADDRINUSE)
		}
		return "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listeners[a[0]], w.addrs[a[0]] = l, l.Addr().String()
	return "", nil
}

// scriptDial: NAME NETWORK ADDRESS [timeout=D] [deadline=T] [local=IP:PORT] [ctx=canceled|expired] [nobody]
//
// Where it says nobody no listener of the script is there. If somebody else of this host is, the
// script is run again.
func scriptDial(w *world, a []string) (string, error) {
	ctx := context.Background()
	var how dialHow
	nobody := false
	for _, option := range a[3:] {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "timeout":
			how.timeout = duration(value)
		case "deadline":
			how.deadline = instant(value)
		case "local":
			how.localAddr = w.localAddr(value)
		case "nobody":
			nobody = true
		case "ctx":
			var cancel context.CancelFunc
			if value == "expired" {
				ctx, cancel = context.WithDeadline(ctx, instant("past"))
			} else {
				ctx, cancel = context.WithCancel(ctx)
				cancel()
			}
			defer cancel()
		default:
			panic("dial " + option)
		}
	}
	c, err := w.tr.dial(ctx, how, w.tr.network(suffix(a[1])), w.address(a[2]))
	if err != nil && c != nil {
		return "", errors.New("a connection and an error")
	}
	w.void = w.void || nobody && err == nil
	return "", w.add(a[0], c, err)
}

// localAddr is an IP address with a port, a port alone, or a value that is no TCP address.
func (w *world) localAddr(word string) net.Addr {
	switch word {
	case "udp":
		return &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}
	case "nil":
		return (*net.TCPAddr)(nil)
	}
	if port, ok := strings.CutPrefix(word, "port:"); ok { // which need be none
		return &net.TCPAddr{Port: number(port)}
	}
	a, err := net.ResolveTCPAddr("tcp", w.address(word))
	if err != nil {
		panic(err) // the script is wrong
	}
	return a
}

// scriptAccept: NAME LISTENER
func scriptAccept(w *world, a []string) (string, error) {
	c, err := w.listener(a[1]).Accept()
	if err != nil && c != nil {
		return "", errors.New("a connection and an error")
	}
	return "", w.add(a[0], c, err)
}

// scriptAddrs: CLIENT SERVER LISTENER tells how their addresses go together.
func scriptAddrs(w *world, a []string) (string, error) {
	c, s, l := w.conn(a[0]), w.conn(a[1]), w.listener(a[2])
	var all []string
	tell := func(name string, addr net.Addr) *net.TCPAddr {
		t, ok := addr.(*net.TCPAddr)
		if !ok {
			all = append(all, fmt.Sprintf("%s is a %T", name, addr))
			return new(net.TCPAddr)
		}
		all = append(all, fmt.Sprintf("%s %s %s zone=%q", name, t.Network(), t.IP, t.Zone))
		return t
	}
	cl, cr := tell("client local", c.LocalAddr()), tell("client remote", c.RemoteAddr())
	sl, sr := tell("server local", s.LocalAddr()), tell("server remote", s.RemoteAddr())
	ll := tell("listener", l.Addr())
	all = append(all, fmt.Sprintf("meet=%t,%t port=%t,%t ephemeral=%t",
		cl.String() == sr.String(), cr.String() == sl.String(), cr.Port == ll.Port, sl.Port == ll.Port, cl.Port >= 1024))
	return strings.Join(all, "; "), nil
}

// scriptListenAddr: LISTENER
func scriptListenAddr(w *world, a []string) (string, error) {
	t := w.listener(a[0]).Addr().(*net.TCPAddr)
	return fmt.Sprintf("%s port=%t", t.IP, t.Port != 0), nil
}
