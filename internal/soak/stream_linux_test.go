package soak

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"
)

// A stream is one direction of a connection: blocks of a header, as many bytes as that
// says, 64 KiB at most, and the hash of both.
const (
	headerSize = 16
	blockSize  = 64 << 10
	frameSize  = headerSize + blockSize + sha256.Size
)

// A block begins with its size, which in its stream it is, and what it asks for.
type block struct {
	size int
	ask  ask
	arg  int
}

// ask is what a client wants a server to do.
type ask uint32

const (
	askNothing ask = iota
	askAnswer      // with a block of arg bytes
	askBulk        // send arg whole blocks
	askMercy       // the connection is going to break off
	askTotal       // of the server: arg blocks have arrived
)

// errWrong is that what arrived is not what was sent.
var errWrong = errors.New("wrong bytes")

// A writer sends blocks. It is used by one goroutine at a time.
type writer struct {
	c      net.Conn
	rng    *rand.Rand
	src    *rand.ChaCha8
	buf    *[frameSize]byte
	blocks int
}

// A reader receives them.
type reader struct {
	c      net.Conn
	rng    *rand.Rand
	buf    *[frameSize]byte
	blocks int
}

// frames are buffers for a whole block.
var frames = sync.Pool{New: func() any { return new([frameSize]byte) }}

func newStreams(c net.Conn, rng *rand.Rand) (*reader, *writer) {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], rng.Uint64())
	return &reader{c: c, rng: rand.New(rand.NewPCG(rng.Uint64(), 0)), buf: frames.Get().(*[frameSize]byte)},
		&writer{c: c, rng: rand.New(rand.NewPCG(rng.Uint64(), 0)), src: rand.NewChaCha8(key), buf: frames.Get().(*[frameSize]byte)}
}

func (w *writer) write(b block) error {
	f := w.buf[:headerSize+b.size]
	for i, v := range []uint32{uint32(b.size), uint32(w.blocks), uint32(b.ask), uint32(b.arg)} {
		binary.LittleEndian.PutUint32(f[4*i:], v)
	}
	_, _ = w.src.Read(f[headerSize:])
	sum := sha256.Sum256(f)
	f = append(f, sum[:]...)
	w.blocks++
	return inPieces(f, w.rng, w.c.SetWriteDeadline, w.c.Write)
}

func (r *reader) read() (b block, err error) {
	if err := r.fill(r.buf[:headerSize]); err != nil {
		return b, err
	}
	var h [4]uint32
	for i := range h {
		h[i] = binary.LittleEndian.Uint32(r.buf[4*i:])
	}
	if h[0] > blockSize || int(h[1]) != r.blocks {
		return b, fmt.Errorf("%w: block %d says that it is block %d of %d bytes", errWrong, r.blocks, h[1], h[0])
	}
	b = block{size: int(h[0]), ask: ask(h[2]), arg: int(h[3])}
	end := headerSize + b.size
	if err := r.fill(r.buf[headerSize : end+sha256.Size]); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return b, err
	}
	if sum := sha256.Sum256(r.buf[:end]); !bytes.Equal(sum[:], r.buf[end:end+sha256.Size]) {
		return b, fmt.Errorf("%w: the hash of block %d of %d bytes", errWrong, r.blocks, b.size)
	}
	r.blocks++
	return b, nil
}

// fill reads all of p. End of file is io.EOF before the first byte only.
func (r *reader) fill(p []byte) error {
	n := 0
	err := inPieces(p, r.rng, r.c.SetReadDeadline, func(p []byte) (int, error) {
		m, err := r.c.Read(p)
		n += m
		return m, err
	})
	if err == io.EOF && n > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

// inPieces has call take p in pieces of many sizes, some under deadlines that are near,
// or past, and goes on after these.
func inPieces(p []byte, rng *rand.Rand, set func(time.Time) error, call func([]byte) (int, error)) error {
	for len(p) > 0 {
		piece := p
		if rng.IntN(4) == 0 {
			piece = p[:1+rng.IntN(len(p))]
		}
		if rng.IntN(16) != 0 {
			n, err := call(piece)
			p = p[n:]
			if err != nil && len(p) > 0 {
				return err
			}
			continue
		}
		past := rng.IntN(3) == 0
		at := time.Now().Add(time.Duration(rng.IntN(500)) * time.Microsecond)
		if past {
			at = time.Unix(1, 0)
		}
		if err := set(at); err != nil {
			return err
		}
		n, err := call(piece)
		if past && (n > 0 || err == nil) {
			return fmt.Errorf("%w: %d under a deadline that had passed", errWrong, n)
		}
		p = p[n:]
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if err := set(time.Time{}); err != nil {
			return err
		}
	}
	return nil
}
