package rdmanet

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"os"
	"time"
)

// A stressEnd is one end. Its stream is data and at last, when all has been written,
// the hash of it.
type stressEnd struct {
	c    *Conn
	size int
	rng  [2]*rand.Rand // of its reader and its writer
}

func newStressEnd(c *Conn, seed int) *stressEnd {
	e := &stressEnd{c: c}
	for i := range e.rng {
		e.rng[i] = rand.New(rand.NewPCG(uint64(seed), uint64(i)))
	}
	e.size = e.rng[dirWrite].IntN(1 << e.rng[dirWrite].IntN(20))
	return e
}

// write sends the stream in every way there is.
func (e *stressEnd) write() error {
	rng, h := e.rng[dirWrite], sha256.New()
	src := rand.NewChaCha8([32]byte{byte(e.size)})
	buf := make([]byte, MaxReserve)
	for left := e.size; left > 0; {
		n := min(1+rng.IntN(1<<rng.IntN(17)), left, MaxReserve)
		p := buf[:n]
		_, _ = src.Read(p)
		h.Write(p)
		if err := e.send(rng, p); err != nil {
			return fmt.Errorf("write with %d bytes left: %w", left, err)
		}
		left -= n
	}
	if err := e.send(rng, h.Sum(nil)); err != nil {
		return fmt.Errorf("write of the hash: %w", err)
	}
	return e.c.CloseWrite()
}

// send sends p, going on after a deadline.
func (e *stressEnd) send(rng *rand.Rand, p []byte) error {
	switch rng.IntN(8) {
	case 0:
		b, err := e.c.Reserve(len(p))
		if err != nil {
			return err
		}
		return e.c.Commit(copy(b, p))
	case 1:
		n, err := e.c.ReadFrom(&oneRead{p})
		if err == nil && n != int64(len(p)) {
			err = io.ErrShortWrite
		}
		return err
	case 2:
		return e.patiently(rng, e.c.SetWriteDeadline, func() (bool, error) {
			n, err := e.c.Write(p)
			p = p[n:]
			return len(p) == 0, err
		})
	}
	_, err := e.c.Write(p)
	return err
}

// patiently calls f under deadlines that may pass, until it is done, and in the end
// without one.
func (e *stressEnd) patiently(rng *rand.Rand, set func(time.Time) error, f func() (done bool, err error)) error {
	for {
		if err := set(time.Now().Add(time.Duration(rng.IntN(300)-50) * time.Microsecond)); err != nil {
			return err
		}
		done, err := f()
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return errors.Join(err, set(time.Time{}))
		}
		if done {
			return set(time.Time{})
		}
	}
}

// oneRead is a Reader that gives what it has without a WriteTo of its own.
type oneRead struct{ p []byte }

func (r *oneRead) Read(p []byte) (int, error) {
	if len(r.p) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.p)
	r.p = r.p[n:]
	return n, nil
}

// read takes the peer's stream in every way there is and compares the hash.
func (e *stressEnd) read() error {
	rng := e.rng[dirRead]
	tail := tailHash{h: sha256.New()}
	buf := make([]byte, 128<<10)
	for {
		p := buf[:1+rng.IntN(1<<rng.IntN(17))]
		var n int
		var err error
		switch rng.IntN(8) {
		case 0:
			var b []byte
			if b, err = e.c.Peek(len(p)); err == nil {
				n = copy(buf, b)
				_, err = e.c.Discard(n)
			}
		case 1:
			err = e.patiently(rng, e.c.SetReadDeadline, func() (bool, error) {
				m, err := e.c.Read(p)
				n = m
				return m > 0, err
			})
		case 2:
			if rng.IntN(100) == 0 {
				_, err = e.c.WriteTo(&tail)
				if err == nil {
					err = io.EOF
				}
				break
			}
			fallthrough
		default:
			n, err = e.c.Read(p)
		}
		_, _ = tail.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			return tail.check()
		}
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
	}
}

// tailHash hashes all but the last bytes, which are the hash of the others.
type tailHash struct {
	h    hash.Hash
	tail []byte
}

func (t *tailHash) Write(p []byte) (int, error) {
	t.tail = append(t.tail, p...)
	if n := len(t.tail) - t.h.Size(); n > 0 {
		t.h.Write(t.tail[:n])
		t.tail = append(t.tail[:0], t.tail[n:]...)
	}
	return len(p), nil
}

func (t *tailHash) check() error {
	if string(t.tail) != string(t.h.Sum(nil)) {
		return errors.New("what arrived is not what was sent")
	}
	return nil
}
