package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/cli/console"
)

// errCut is the end of connections that did not end by themselves.
var errCut = errors.New("cut off, as the proxy ends")

// proxy takes clients from one place to another.
type proxy struct {
	options
	log *log.Logger
	totals
}

// serve serves the clients of l until stop is done and the connections have ended;
// those that do not in time, and all if interrupt is done, are reset. It closes l.
func (p *proxy) serve(stop, interrupt context.Context, l net.Listener) error {
	cut, cutOff := context.WithCancel(interrupt)
	defer cutOff()
	var relays sync.WaitGroup
	err := p.accept(stop, l, func(client net.Conn) {
		p.open.Add(1) // before stop may be looked at
		relays.Go(func() {
			defer p.open.Add(-1)
			p.carry(cut, client)
		})
	})
	_ = l.Close()
	if open := p.open.Load(); open > 0 && err == nil {
		p.log.Printf("open connections: %d, which may go on for %v; Ctrl-C cuts them off", open, p.drain)
	}
	drain := p.drain
	if err != nil {
		drain = 0
	}
	limit := time.AfterFunc(drain, cutOff)
	relays.Wait()
	limit.Stop()
	switch n := p.cut.Load(); {
	case err != nil:
		return err
	case interrupt.Err() != nil:
		return interrupt.Err()
	case n > 0:
		return fmt.Errorf("connections that did not end within %v and were cut off: %d", p.drain, n)
	}
	return nil
}

// accept gives each client to handle until stop is done, or clients cannot be
// accepted any more.
func (p *proxy) accept(stop context.Context, l net.Listener, handle func(net.Conn)) error {
	defer context.AfterFunc(stop, func() { _ = l.Close() })()
	var pause time.Duration
	for {
		client, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			handle(client)
		case stop.Err() != nil:
			return nil
		case !passing(err):
			return err
		default:
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			p.log.Printf("%v; trying again in %v", err, pause)
			select {
			case <-time.After(pause):
			case <-stop.Done():
			}
		}
	}
}

// passing reports whether Accept may succeed later: descriptors or memory ran out, which
// connections that end give back, or a client left.
func passing(err error) bool {
	for _, errno := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// carry connects a client to where it wants to go, until they are done with each
// other or cut is done.
func (p *proxy) carry(cut context.Context, client net.Conn) {
	p.connections.Add(1)
	start := time.Now()
	server, err := p.to.Dial(cut, p.to.address)
	if err != nil {
		reset(client)
		if cut.Err() != nil { // it might have been reached in time; a dial that waited to begin again returns an earlier error
			p.cut.Add(1)
			return
		}
		p.unreached.Add(1)
		p.log.Printf("%s: cannot reach %s: %v", name(client), p.to, err)
		return
	}
	r := &relay{client: client, server: server}
	release := context.AfterFunc(cut, func() { r.abort(errCut) })
	err = r.run(cut)
	release()
	p.add(r)
	outcome := "closed"
	if err != nil {
		outcome = err.Error()
	}
	if p.verbose || err != nil && err != errCut && !brokenByPeer(err) {
		p.log.Printf("%s: %s there, %s back in %s, %s", name(client),
			console.Size(r.there), console.Size(r.back), console.Latency(time.Since(start)), outcome)
	}
}

// brokenByPeer reports whether one of the ends broke the connection, as it may.
func brokenByPeer(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ENOTCONN)
}

// name is the client's address; those of Unix sockets have none.
func name(client net.Conn) string {
	if at := client.RemoteAddr().String(); at != "" && at != "@" {
		return at
	}
	return "a client of " + client.LocalAddr().String()
}
