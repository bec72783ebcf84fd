package soak

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"time"
)

// A conn is what connections of both kinds are.
type conn interface {
	net.Conn
	CloseWrite() error
	SetLinger(sec int) error
}

// serveAll serves until the listener is closed. The seeds of its connections begin at first.
func (p *population) serveAll(l net.Listener, first uint64) {
	for i := first; ; i++ {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			p.fail("Accept", err)
			return
		}
		rng, since := rand.New(rand.NewPCG(p.seed, i)), time.Now()
		p.serving.Go(func() {
			mercy, err := p.serve(c.(conn), rng)
			switch {
			case err == nil:
			case mercy && err == io.ErrUnexpectedEOF: // closed within a block
			case (mercy || p.diedSince(since.Add(-patience))) && brokenOff(c, err):
			default:
				p.fail("a server", err)
			}
		})
	}
}

// serve does what the client asks for. In the end it tells it how many blocks came.
func (p *population) serve(c conn, rng *rand.Rand) (mercy bool, err error) {
	r, w := newStreams(c, rng)
	defer func() {
		// A dialer on a network of TCP may try both ways, and leaves the slower one.
		if r.blocks == 0 && err != nil && brokenOff(c, err) {
			err = nil
		}
		p.closed(c)
		frames.Put(r.buf)
		frames.Put(w.buf)
	}()
	sent := make(chan error, 1) // the last bulk
	sent <- nil
	for {
		b, err := r.read()
		if err != nil && err != io.EOF {
			c.Close() // so that a bulk ends
			<-sent
			return mercy, err
		}
		p.blocks.Add(1)
		if err == nil && b.ask == askNothing {
			continue
		}
		if err := <-sent; err != nil {
			return mercy, err
		}
		switch {
		case err == io.EOF:
			if err := w.write(block{ask: askTotal, arg: r.blocks}); err != nil {
				return mercy, err
			}
			return mercy, c.CloseWrite()
		case b.ask == askAnswer || b.ask == askMercy:
			mercy = mercy || b.ask == askMercy
			if err := w.write(block{size: b.arg}); err != nil {
				return mercy, err
			}
			sent <- nil
		default:
			go func() { sent <- w.bulk(b.arg) }()
		}
	}
}
