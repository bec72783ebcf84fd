package link

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/link/hello"
	"github.com/rdmanet/go-rdmanet/internal/syncbuffer"
	"github.com/rdmanet/go-rdmanet/internal/testseed"
	"github.com/rdmanet/go-rdmanet/ring"
)

// logsOf has what is logged until the test ends go to a buffer.
func logsOf(t *testing.T) *syncbuffer.Buffer {
	l, usual := new(syncbuffer.Buffer), slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(l, nil)))
	t.Cleanup(func() { slog.SetDefault(usual) })
	return l
}

const wantsChecksums = cm.FeatureChecksum | cm.FeatureWantChecksum

// eachChecked has checksums by the wish of one end, the other, or both.
func eachChecked(t *testing.T, f func(t *testing.T, b *bed)) {
	logsOf(t)
	for i, fl := range flavours() {
		t.Run(fl.name, func(t *testing.T) {
			b := newBed(t, fl.cfg)
			if i%3 != 0 {
				b.links.cfg.checksums = wantsChecksums
			}
			if i%3 != 1 {
				b.l.cfg.checksums = wantsChecksums
			}
			f(t, b)
		})
	}
}

// checkedBed is one of them.
func checkedBed(t *testing.T) *bed {
	logsOf(t)
	return newBed(t, Config{Checksum: true})
}

// noise is n bytes that are never the same.
func noise(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 0))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// streamWrites and streamReads are the ways to send b, and to read at most n bytes.
var (
	streamWrites = []func(s *Stream, b []byte) error{
		func(s *Stream, b []byte) error { _, err := s.Write(b); return err },
		func(s *Stream, b []byte) error {
			for len(b) > 0 {
				to, err := s.TakeBuffer()
				if err != nil {
					return err
				}
				if to == nil {
					_, err = s.Write(b)
					return err
				}
				n := copy(to.Bytes(), b)
				_, err = s.Send(to, n)
				to.Free()
				if err != nil {
					return err
				}
				b = b[n:]
			}
			return nil
		},
	}
	streamReads = []func(s *Stream, n int) ([]byte, error){
		func(s *Stream, n int) ([]byte, error) {
			b := make([]byte, n)
			n, err := s.Read(b)
			return b[:n], err
		},
		func(s *Stream, n int) ([]byte, error) { return peekAndConsume(s, n) },
		func(s *Stream, n int) ([]byte, error) {
			if _, err := s.Peek(n, false); err != nil {
				return nil, err
			}
			s.Unpeek() // and is read again
			return peekAndConsume(s, 0)
		},
	}
)

func peekAndConsume(s *Stream, n int) ([]byte, error) {
	b, err := s.Peek(n, false)
	b = bytes.Clone(b)
	if err == nil {
		s.Consume(len(b), true)
	}
	return b, err
}

// TestFrames sends streams with checksums in pieces of all sizes, by all ways to send and to
// read, both ways at once, while rings grow and shrink.
func TestFrames(t *testing.T) {
	seed := testseed.From(t, "RDMANET_FRAME_SEED")
	pieces := []int{1, 8, 9, 56, 57, 64, 248, 257, 1000, 4096, 20_000, 100_000}
	eachChecked(t, func(t *testing.T, b *bed) {
		client, server := b.pair()
		require.True(t, client.Checksum() && server.Checksum())
		want := noise(1<<20, 5)
		done := make(chan error, 4)
		for i, s := range []*Stream{client, server} {
			go func() {
				r := rand.New(rand.NewPCG(seed, uint64(i)))
				for b := want; len(b) > 0; {
					n := min(len(b), 1+r.IntN(pieces[r.IntN(len(pieces))]))
					if err := streamWrites[r.IntN(len(streamWrites))](s, b[:n]); err != nil {
						done <- fmt.Errorf("writing: %w", err)
						return
					}
					b = b[n:]
				}
				done <- s.CloseWrite()
			}()
			go func() {
				r := rand.New(rand.NewPCG(seed, uint64(2+i)))
				var got []byte
				var err error
				for err == nil {
					var b []byte
					b, err = streamReads[r.IntN(len(streamReads))](s, 1+r.IntN(pieces[r.IntN(len(pieces))]))
					got = append(got, b...)
				}
				switch {
				case err != io.EOF:
					err = fmt.Errorf("reading: %w", err)
				case !bytes.Equal(got, want):
					err = fmt.Errorf("%d bytes arrived, and not those that were sent", len(got))
				default:
					err = nil
				}
				done <- err
			}()
		}
		within(t, "streams with checksums", func() {
			for range cap(done) {
				require.NoError(t, <-done)
			}
		})
		for _, s := range []*Stream{client, server} {
			st := s.Status()
			require.EqualValues(t, len(want), st.Read, "of the stream, not of the ring")
			require.EqualValues(t, len(want), st.Written)
			require.Zero(t, st.Unread, "nothing is left of the padding")
			require.Zero(t, st.ChecksumErrors)
		}
	})
}

// requireCorrupt sees that err says what a wrong checksum says, at either end.
func requireCorrupt(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, ring.ErrChecksum)
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

// flip changes a bit of a byte of the ring that s reads from.
func flip(s *Stream, at int) { flipBit(s, 8*at+4) }

func flipBit(s *Stream, bit int) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.in.pieces[0].Bytes()[bit/8] ^= 1 << (bit % 8)
}

// awaitUnread waits until so many bytes of frames have come.
func awaitUnread(t *testing.T, s *Stream, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		if s.e.begin() {
			s.e.pollNow()
			s.e.tasks.Done()
		}
		return s.Status().Unread >= n
	}, patience, time.Millisecond)
}

// TestFrameFlippedBit changes a bit in the memory of a ring: what came before that message is
// read and none of its own, both ends are told why, and the streams beside it go on.
func TestFrameFlippedBit(t *testing.T) {
	second := ring.FrameLen(100)
	eachChecked(t, func(t *testing.T, b *bed) {
		beside, there := b.pair()
		for _, at := range []int{second, second + 3, second + 4, second + ring.FrameHeaderLen, second + 50, second + ring.FrameHeaderLen + 99} {
			for i, read := range streamReads {
				for _, size := range []int{30, 4096} {
					client, server := b.pair()
					require.NoError(t, streamWrites[i%2](client, noise(100, 1)))
					require.NoError(t, streamWrites[i%2](client, noise(100, 2)))
					awaitUnread(t, server, 2*second)
					flip(server, at)
					var got []byte
					var err error
					for err == nil {
						var b []byte
						b, err = read(server, size)
						got = append(got, b...)
					}
					requireCorrupt(t, err)
					require.ErrorContains(t, err, "after 100 bytes")
					require.Equal(t, noise(100, 1), got)
					flip(server, at)                   // to what was sent
					for _, read := range streamReads { // and so it stays
						b, err := read(server, size)
						requireCorrupt(t, err)
						require.Empty(t, b)
					}
					_, err = server.Write([]byte{1})
					requireCorrupt(t, err)
					st := server.Status()
					require.EqualValues(t, 1, st.ChecksumErrors)
					require.EqualValues(t, 100, st.Read)
					requireCorrupt(t, st.Err)

					within(t, "Read", func() { _, err = client.Read(make([]byte, 1)) })
					requireCorrupt(t, err)
					_, err = client.Write([]byte{1})
					requireCorrupt(t, err)
					require.Zero(t, client.Status().ChecksumErrors, "it is the finder who counts")
					require.NoError(t, client.Close())
					require.NoError(t, server.Close())
				}
			}
		}
		say(t, beside, there)
	})
}

// What was summed ahead is summed anew where a move has left room for less, or a credit for more.
func TestFrameSummedAhead(t *testing.T) {
	client, server := checkedBed(t).pair()
	want := noise(100, 1)
	for _, ahead := range []summed{{}, {n: 99, sum: 1}, {n: 101, sum: 1}, {n: 100, sum: ring.Checksum(ring.Checksum(0, bytes.Repeat(want, 3)), want)}} {
		client.e.mu.Lock()
		n, err := client.message(want, nil, true, ahead)
		client.e.settle()
		client.e.mu.Unlock()
		require.NoError(t, err)
		require.Equal(t, len(want), n)
	}
	got := make([]byte, 4*len(want))
	_, err := io.ReadFull(server, got)
	require.NoError(t, err)
	require.Equal(t, bytes.Repeat(want, 4), got)
}

// Padding is not part of the stream.
func TestFramePadding(t *testing.T) {
	client, server := checkedBed(t).pair()
	_, err := client.Write(noise(10, 1))
	require.NoError(t, err)
	awaitUnread(t, server, 32)
	flip(server, 20)
	got := make([]byte, 10)
	_, err = io.ReadFull(server, got)
	require.NoError(t, err)
	require.Equal(t, noise(10, 1), got)
}

// TestFrameEnd: a stream that has lost its last bytes does not end in good order, nor does one
// whose bytes were changed before the peer has ended it.
func TestFrameEnd(t *testing.T) {
	for name, end := range map[string]func(*Stream) error{"CloseWrite": (*Stream).CloseWrite, "Close": (*Stream).Close, "Reset": (*Stream).Reset} {
		for i, read := range streamReads {
			t.Run(fmt.Sprintf("%s/%d", name, i), func(t *testing.T) {
				b := checkedBed(t)
				if name != "Reset" {
					client, server := b.pair()
					_, err := client.Write(noise(10, 1))
					require.NoError(t, err)
					client.e.mu.Lock()
					client.st.Summed(client.st.Sum() + 1) // as with a frame that never was written
					client.e.mu.Unlock()
					require.NoError(t, end(client))
					_, err = io.ReadFull(server, make([]byte, 10))
					require.NoError(t, err)
					for range 3 {
						_, err = read(server, 10)
						requireCorrupt(t, err)
					}
					require.ErrorContains(t, err, "the stream ended with")
				}
				client, server := b.pair()
				_, err := client.Write(noise(10, 1))
				require.NoError(t, err)
				awaitUnread(t, server, 32)
				require.NoError(t, end(client))
				require.Eventually(t, func() bool { return server.Status().Ended }, patience, time.Millisecond)
				flip(server, 12)
				for range 3 {
					got, err := read(server, 10)
					requireCorrupt(t, err)
					require.Empty(t, got)
				}
				require.EqualValues(t, 1, server.Status().ChecksumErrors)
			})
		}
	}
}

// TestFrameCloseAfter has the end that found it close at once: its peer still hears why.
func TestFrameCloseAfter(t *testing.T) {
	eachChecked(t, func(t *testing.T, b *bed) {
		logs := logsOf(t)
		defer func() {
			require.Eventually(t, func() bool { return strings.Count(logs.String(), "bytes did not arrive as they were sent") >= 10 }, patience, time.Millisecond)
		}()
		for range 10 {
			client, server := b.pair()
			_, err := client.Write(noise(10, 1))
			require.NoError(t, err)
			awaitUnread(t, server, 32)
			flip(server, 12)
			waiting := make(chan error, 1)
			go func() {
				_, err := client.Read(make([]byte, 1))
				waiting <- err
			}()
			_, err = server.Read(make([]byte, 1))
			requireCorrupt(t, err)
			require.NoError(t, server.Close())
			within(t, "Read", func() { requireCorrupt(t, <-waiting) })
			require.NoError(t, client.Close())
		}
	})
}

// A Consume of more than Peek returned ends the lane, and not the process.
func TestFrameTakeTooMuch(t *testing.T) {
	client, server := checkedBed(t).pair()
	_, err := client.Write(noise(10, 1))
	require.NoError(t, err)
	b, err := server.Peek(0, false)
	require.NoError(t, err)
	server.Consume(len(b)+1, true)
	_, err = io.ReadFull(server, make([]byte, len(b)))
	require.NoError(t, err, "what has arrived can be read")
	_, err = server.Read(make([]byte, 1))
	require.ErrorIs(t, err, ring.ErrConfig)
	require.NotErrorIs(t, err, ring.ErrChecksum)
}

// Without the wish of either end nothing is compared, and a frame has no header.
func TestFramesOff(t *testing.T) {
	client, server := newBed(t, Config{}).pair()
	require.False(t, client.Checksum() || server.Checksum())
	_, err := client.Write([]byte("hello"))
	require.NoError(t, err)
	awaitUnread(t, server, 5)
	flip(server, 0)
	got := make([]byte, 5)
	_, err = io.ReadFull(server, got)
	require.NoError(t, err)
	require.Equal(t, "xello", string(got), "nobody noticed")
}

// TestFrameNegotiation has an end that wants checksums meet one that is too old to know them.
func TestFrameNegotiation(t *testing.T) {
	const wants = wantsChecksums
	for _, c := range []struct {
		mine, peer cm.Features
		ok         bool
	}{
		{0, 0, true}, {0, cm.FeatureChecksum, true}, {wants, cm.FeatureChecksum, true}, {cm.FeatureChecksum, wants, true},
		{wants, wants, true}, {wants, 0, false}, {0, wants, false},
	} {
		mine := hello.Word{Checksums: c.mine}
		err := mine.Match(&hello.Word{Checksums: c.peer})
		require.Equal(t, c.ok, err == nil, "%+v: %v", c, err)
		if err != nil {
			require.ErrorIs(t, err, cm.ErrNoChecksum)
			require.Equal(t, cm.RefusedChecksum, refusal(err))
		}
	}

	t.Run("an old dialer", func(t *testing.T) {
		b := newBed(t, Config{})
		b.links.cfg.checksums = 0
		client, server := b.pair()
		require.False(t, client.Checksum() || server.Checksum())
		say(t, client, server)
	})
	t.Run("an old dialer, wanted", func(t *testing.T) {
		b := newBed(t, Config{})
		b.links.cfg.checksums, b.l.cfg.checksums = 0, wants
		_, err := b.links.Dial(b.ctx(), Target{Dst: b.l.Addr()})
		require.ErrorIs(t, err, cm.ErrNoChecksum)
		var refused *cm.RefusedError
		require.True(t, errors.As(err, &refused))
		require.Equal(t, cm.RefusedChecksum, refused.Code)
		require.Contains(t, refused.Text, "update it")
	})
	t.Run("an old listener, asked", func(t *testing.T) {
		b := newBed(t, Config{})
		b.l.cfg.checksums, b.links.cfg.checksums = 0, wants
		_, err := b.links.Dial(b.ctx(), Target{Dst: b.l.Addr()})
		require.ErrorIs(t, err, cm.ErrNoChecksum)
		require.ErrorContains(t, err, "update it, or do without")
	})
}
