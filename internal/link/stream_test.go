package link

import (
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestEcho sends random pieces over many streams at once, echoes them, and compares.
func TestEcho(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		const streams, total = 24, 200_000
		go func() {
			for {
				s, err := b.l.Accept(b.ctx())
				if err != nil {
					return
				}
				go func() {
					defer s.Close()
					_, _ = io.Copy(writerOnly{s}, readerOnly{s})
					_ = s.CloseWrite()
				}()
			}
		}()
		within(t, "echoes", func() {
			var fs []func()
			for i := range streams {
				fs = append(fs, func() { echo(t, b, uint64(i), total) })
			}
			all(fs...)
		})
	})
}

type readerOnly struct{ io.Reader }
type writerOnly struct{ io.Writer }

func echo(t *testing.T, b *bed, seed uint64, total int) {
	s := b.dial()
	defer s.Close()
	sent, got := sha256.New(), sha256.New()
	all(func() {
		rnd := rand.New(rand.NewPCG(seed, 1))
		piece := make([]byte, 1<<16)
		for left := total; left > 0; {
			p := piece[:min(1+rnd.IntN(len(piece))>>rnd.IntN(16), left)]
			for i := range p {
				p[i] = byte(rnd.Uint32())
			}
			n, err := s.Write(p)
			if err != nil || n != len(p) {
				t.Errorf("stream %d: wrote %d of %d with %d left: %v", seed, n, len(p), left, err)
				return
			}
			sent.Write(p)
			left -= n
		}
		if err := s.CloseWrite(); err != nil {
			t.Error(err)
		}
	}, func() {
		n, err := io.Copy(got, readerOnly{s})
		if err != nil || n != int64(total) {
			t.Errorf("stream %d: read %d of %d: %v", seed, n, total, err)
		}
	})
	require.Equal(t, sent.Sum(nil), got.Sum(nil), "stream %d", seed)
}

// TestStreamSize: streams are as large as the class of 512 bytes of the allocator, so that a field more
// would have each take 576.
func TestStreamSize(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(stream{}), uintptr(512))
}

// TestFewStreamsCount: a stream that has only moved bytes has no place for what it has not done.
func TestFewStreamsCount(t *testing.T) {
	client, server := newBed(t, Config{}).pair()
	say(t, client, server)
	say(t, server, client)
	for _, h := range []*Stream{client, server} {
		s := h.now()
		_ = h.Status()
		s.e.mu.Lock()
		require.Nil(t, s.counts.rare)
		require.Nil(t, s.in.together)
		s.e.mu.Unlock()
	}
	require.Zero(t, noRareCounts)
}
