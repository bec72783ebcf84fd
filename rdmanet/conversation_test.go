package rdmanet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
)

// A speech is what one end of a connection says: it follows from a seed, the client's
// port and who says it. So the other end knows each byte that it has to get, also if the
// stream breaks off.
type speech struct {
	src  *rand.ChaCha8
	rng  *rand.Rand // of the sizes of pieces
	left int64
}

func newSpeech(seed uint64, port int, dialler bool) *speech {
	who := uint64(port) << 1
	if dialler {
		who++
	}
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	binary.LittleEndian.PutUint64(key[8:], who)
	rng := rand.New(rand.NewPCG(seed, who))
	return &speech{rand.NewChaCha8(key), rng, rng.Int64N(1 << (8 + rng.IntN(16)))}
}

// speak says all of it and ends the stream.
func (s *speech) speak(c *Conn) error {
	buf := make([]byte, 64<<10)
	for s.left > 0 {
		p := buf[:min(1+s.rng.Int64N(1<<s.rng.IntN(17)), s.left)]
		_, _ = s.src.Read(p)
		n, err := c.Write(p)
		s.left -= int64(n)
		if err != nil {
			return err
		}
	}
	return c.CloseWrite()
}

// errMisheard is that a stream is not what was said.
var errMisheard = errors.New("misheard")

// hear takes it to its end and compares it.
func (s *speech) hear(c io.Reader) error {
	got, want := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err := c.Read(got[:1+s.rng.IntN(1<<s.rng.IntN(17))])
		_, _ = s.src.Read(want[:n])
		switch s.left -= int64(n); {
		case !bytes.Equal(got[:n], want[:n]):
			return fmt.Errorf("%w: other bytes, %d before the end", errMisheard, s.left)
		case s.left < 0:
			return fmt.Errorf("%w: %d bytes beyond the end", errMisheard, -s.left)
		case err == io.EOF && s.left > 0:
			return fmt.Errorf("%w: end of file, %d bytes before the end", errMisheard, s.left)
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// converse has an end say its speech and hear the other's, both at once, and closes the
// connection. told is called with what each direction ended with.
func converse(c *Conn, seed uint64, dialled bool, told func(what string, err error)) {
	port := c.remoteAddr().Port
	if dialled {
		port = c.localAddr().Port
	}
	spoken := make(chan struct{})
	go func() {
		defer close(spoken)
		told("Write", newSpeech(seed, port, dialled).speak(c))
	}()
	told("Read", newSpeech(seed, port, !dialled).hear(c))
	<-spoken
	told("Close", c.Close())
}
