package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// live makes connections, one after the other, and lets each live as the seed says.
func (p *population) live(ctx context.Context, who int) {
	for i := 0; ctx.Err() == nil; i++ {
		rng := rand.New(rand.NewPCG(p.seed, uint64(who)<<32|uint64(i)))
		t := p.choose(rng)
		hangs := time.AfterFunc(lifetime, func() {
			panic(fmt.Sprintf("connection %d of client %d hangs, seed %d", i, who, p.seed))
		})
		c, err := p.one(ctx, t, rng)
		hangs.Stop()
		dying := t.dying.Load()
		t.lives.Done()
		if err != nil && !(dying && (c == nil && refused(err) || c != nil && brokenOff(c, err))) {
			what := fmt.Sprintf("connection %d of client %d with %v", i, who, t.at)
			if c != nil {
				what = fmt.Sprintf("%s, %T from %v", what, c, c.LocalAddr())
			}
			p.fail(what, err)
			return
		}
		p.lives.Add(1)
	}
}

// one is a connection from its dial to its end. On an error c is nil if it was not dialled.
func (p *population) one(ctx context.Context, t *target, rng *rand.Rand) (c conn, err error) {
	network, dialer := "rdma", withRDMA
	switch rng.IntN(8) {
	case 0:
		network, dialer = "tcp", withoutRDMA
	case 1:
		network = "tcp"
	}
	made, err := dialer.DialContext(context.Background(), network, t.at.of(network))
	if err != nil {
		return nil, err
	}
	c = made.(conn)
	defer p.closed(c)
	l := newLife(p, c, rng)
	defer l.end()
	steps := 1 + rng.IntN(8)
	if rng.IntN(50) == 0 {
		steps = 200
	}
	for range steps {
		if ctx.Err() != nil {
			break
		}
		if err := l.step(); err != nil {
			return c, err
		}
	}
	if rng.IntN(6) == 0 {
		return c, l.breakOff(c)
	}
	return c, l.part(c)
}

// A life is the client's end of a connection.
type life struct {
	p   *population
	rng *rand.Rand
	r   *reader
	w   *writer
}

func newLife(p *population, c conn, rng *rand.Rand) *life {
	r, w := newStreams(c, rng)
	return &life{p, rng, r, w}
}

func (l *life) end() {
	frames.Put(l.r.buf)
	frames.Put(l.w.buf)
}

func (l *life) step() error {
	switch l.rng.IntN(8) {
	case 0, 1:
		return l.bulk()
	case 2:
		time.Sleep(time.Duration(l.rng.IntN(20)) * time.Millisecond)
		return nil
	}
	for range 1 + l.rng.IntN(20) {
		if err := l.ask(l.size(), askAnswer, l.size()); err != nil {
			return err
		}
		if err := l.answered(1); err != nil {
			return err
		}
	}
	return nil
}

// size is one of many magnitudes, up to a whole block.
func (l *life) size() int { return l.rng.IntN(1<<l.rng.IntN(17) + 1) }

func (l *life) ask(size int, what ask, arg int) error {
	return l.w.write(block{size: size, ask: what, arg: arg})
}

// answered takes blocks.
func (l *life) answered(n int) error {
	for range n {
		if _, err := l.r.read(); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		l.p.blocks.Add(1)
	}
	return nil
}

// bulk has whole blocks go both ways at once.
func (l *life) bulk() error {
	theirs, ours := l.rng.IntN(1<<l.rng.IntN(7)), l.rng.IntN(1<<l.rng.IntN(7))
	if err := l.ask(0, askBulk, theirs); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() { sent <- l.w.bulk(ours) }()
	err := l.answered(theirs)
	return errors.Join(err, <-sent)
}

// bulk sends whole blocks.
func (w *writer) bulk(n int) error {
	for range n {
		if err := w.write(block{size: blockSize}); err != nil {
			return err
		}
	}
	return nil
}

// part ends the connection in good order: the server has got all of it, and says so.
func (l *life) part(c conn) error {
	if err := c.CloseWrite(); err != nil {
		return err
	}
	b, err := l.r.read()
	switch {
	case err == io.EOF:
		return io.ErrUnexpectedEOF
	case err != nil:
		return err
	case b.ask != askTotal || b.arg != l.w.blocks:
		return fmt.Errorf("%w: %d blocks were sent, and the server got %d", errWrong, l.w.blocks, b.arg)
	}
	switch b, err := l.r.read(); {
	case err == io.EOF:
		return nil
	case err != nil: // the server may have been killed here
		return fmt.Errorf("behind the total: %w", err)
	default:
		return fmt.Errorf("%w: %+v behind the end", errWrong, b)
	}
}

// breakOff ends it while bytes move both ways. The server knows before.
func (l *life) breakOff(c conn) error {
	if err := l.ask(0, askMercy, 0); err != nil {
		return err
	}
	if err := l.answered(1); err != nil {
		return err
	}
	if err := l.ask(0, askBulk, 64); err != nil {
		return err
	}
	var calls sync.WaitGroup
	ends := make(chan error, 2)
	calls.Go(func() { ends <- l.w.bulk(64) })
	calls.Go(func() { ends <- l.answered(64) })
	time.Sleep(time.Duration(l.rng.IntN(1<<l.rng.IntN(12))) * time.Microsecond)
	if l.rng.IntN(2) == 0 {
		if err := c.SetLinger(0); err != nil && !brokenOff(c, err) {
			return err
		}
	}
	if err := c.Close(); err != nil {
		return err
	}
	for range 2 {
		if err := <-ends; err != nil && !errors.Is(err, net.ErrClosed) && !brokenOff(c, err) {
			return err
		}
	}
	return nil
}

// closed sees a connection to its end.
func (p *population) closed(c conn) {
	if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		p.fail("Close", err)
	}
	rc, ok := c.(*rdmanet.Conn)
	if !ok {
		p.byTCP.Add(1)
		return
	}
	p.byRDMA.Add(1)
	if rc.Stats().RingsGrown > 0 {
		p.grown.Add(1)
	}
}

// brokenOff reports whether an error is what the end of a connection is told whose peer broke
// it off, or died: CloseWrite is told ENOTCONN, as over TCP, which tells an end of file
// if nothing was on its way.
func brokenOff(c net.Conn, err error) bool {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		_, rdma := c.(*rdmanet.Conn)
		return !rdma
	}
	var op *net.OpError
	return errors.As(err, &op) && !op.Timeout() && !errors.Is(err, errWrong) &&
		(errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ENOTCONN))
}

// refused reports whether an error is what a dial is told where nobody listens any more.
func refused(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && !op.Timeout() &&
		(errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET))
}
