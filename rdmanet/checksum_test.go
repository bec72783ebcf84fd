package rdmanet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"

	"github.com/rdmanet/go-rdmanet/internal/testseed"
)

// checkedFlavours are the flavours with checksums, by the wish of one end or the other.
func checkedFlavours() []flavour {
	all := flavours()
	for i := range all {
		all[i].dialer.Logger, all[i].listen.Logger = quiet, quiet
		if i%2 == 0 {
			all[i].dialer.Checksum = true
		} else {
			all[i].listen.Checksum = true
		}
	}
	return all
}

func eachChecked(t *testing.T, f func(t *testing.T, fl flavour)) {
	for _, fl := range checkedFlavours() {
		t.Run(fl.name, func(t *testing.T) { f(t, fl) })
	}
}

func TestChecksumNetConn(t *testing.T) {
	mostlyWaits(t)
	eachChecked(t, func(t *testing.T, fl flavour) {
		nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
			client, server, err := dialPair(&fl.dialer, &fl.listen)
			if err != nil {
				return nil, nil, nil, err
			}
			if !client.Checksum() || !server.Checksum() {
				err = errors.New("no checksums")
			}
			return client, server, func() { client.Close(); server.Close() }, err
		})
	})
}

// TestChecksumDifferential runs the scripts of TestDifferential with checksums.
func TestChecksumDifferential(t *testing.T) {
	mostlyWaits(t)
	for _, s := range loadScripts(t, "testdata/differential/*.txt") {
		if s.loopback && !hasLoopback() {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			want := s.run(t, overTCP{})
			atOnce(t, checkedFlavours(), flavourName, func(t *testing.T, fl flavour) {
				compare(t, s, want, s.run(t, overRDMA{fl}))
			})
		})
	}
}

func TestChecksumNoAllocation(t *testing.T) { noAllocation(t, eachChecked) }

// writings are the ways to send b.
var writings = []func(c *Conn, b []byte) error{
	func(c *Conn, b []byte) error {
		_, err := c.Write(b)
		return err
	},
	func(c *Conn, b []byte) error {
		_, err := c.ReadFrom(bytes.NewReader(b))
		return err
	},
	func(c *Conn, b []byte) error {
		for len(b) > 0 {
			buf, err := c.Reserve(min(len(b), MaxReserve))
			if err != nil {
				return err
			}
			if err := c.Commit(copy(buf, b)); err != nil {
				return err
			}
			b = b[len(buf):]
		}
		return nil
	},
}

// readings are the ways to read at most n bytes.
var readings = []func(c *Conn, n int) ([]byte, error){
	func(c *Conn, n int) ([]byte, error) {
		b := make([]byte, n)
		n, err := c.Read(b)
		return b[:n], err
	},
	func(c *Conn, n int) ([]byte, error) {
		b, err := c.Peek(n)
		b = bytes.Clone(b)
		if err == nil {
			_, err = c.Discard(len(b))
		}
		return b, err
	},
	func(c *Conn, n int) ([]byte, error) {
		var got bytes.Buffer
		_, err := c.WriteTo(&limitedSink{&got, n})
		switch {
		case err == nil:
			err = io.EOF
		case errors.Is(err, errSinkFull):
			err = nil
		}
		return got.Bytes(), err
	},
}

// limitedSink takes some bytes and no more.
type limitedSink struct {
	w    io.Writer
	room int
}

var errSinkFull = errors.New("the sink is full")

func (s *limitedSink) Write(b []byte) (int, error) {
	n, err := s.w.Write(b[:min(len(b), s.room)])
	if s.room -= n; err == nil && s.room == 0 {
		err = errSinkFull
	}
	return n, err
}

// TestChecksumStream sends streams in pieces of all sizes, by all ways to send and to
// read, both ways at once.
func TestChecksumStream(t *testing.T) {
	seed := testseed.From(t, "RDMANET_CHECKSUM_SEED")
	pieces := []int{1, 8, 9, 24, 64, 257, 1000, 4096, 20_000, 100_000}
	eachChecked(t, func(t *testing.T, fl flavour) {
		client, server := fl.pair(t)
		want := noise(2<<20, 5)
		done := make(chan error, 4)
		for i, c := range []*Conn{client, server} {
			go func() {
				r := rand.New(rand.NewPCG(seed, uint64(i)))
				for b := want; len(b) > 0; {
					n := min(len(b), 1+r.IntN(pieces[r.IntN(len(pieces))]))
					if err := writings[r.IntN(len(writings))](c, b[:n]); err != nil {
						done <- fmt.Errorf("writing: %w", err)
						return
					}
					b = b[n:]
				}
				done <- c.CloseWrite()
			}()
			go func() {
				r := rand.New(rand.NewPCG(seed, uint64(2+i)))
				got, err := make([]byte, 0, len(want)), error(nil)
				for err == nil {
					var b []byte
					b, err = readings[r.IntN(len(readings))](c, 1+r.IntN(pieces[r.IntN(len(pieces))]))
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
		for range cap(done) {
			require.NoError(t, <-done)
		}
		for _, c := range []*Conn{client, server} {
			s := c.Stats()
			require.EqualValues(t, len(want), s.BytesRead, "of the stream, not of the ring")
			require.EqualValues(t, len(want), s.BytesWritten)
			require.EqualValues(t, 2*len(want), s.BytesCopied+s.BytesPlaced)
			require.Zero(t, s.ChecksumErrors)
		}
	})
}

// TestChecksumOfNothing ends streams without a byte in them.
func TestChecksumOfNothing(t *testing.T) {
	eachChecked(t, func(t *testing.T, fl flavour) {
		client, server := fl.pair(t)
		n, err := client.Write(nil)
		require.NoError(t, err)
		require.Zero(t, n)
		require.NoError(t, client.CloseWrite())
		_, err = server.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
		require.NoError(t, server.Close())
		_, err = client.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
	})
}

// TestChecksumAfterShutBothWays: an end that has shut both directions down drops what arrives then, and
// finds the end of the stream behind it, as over TCP, and not that bytes are wrong.
func TestChecksumAfterShutBothWays(t *testing.T) {
	eachChecked(t, func(t *testing.T, fl flavour) {
		l := fl.newListener(t) // it stays: without it the last end of a lane need not arrive
		for i := range 10 {
			c, err := fl.dialer.dial(context.Background(), "rdma", l.Addr().String())
			require.NoError(t, err)
			closeLater(t, c)
			peer, err := l.AcceptConn()
			require.NoError(t, err)
			closeLater(t, peer)
			if i%2 == 0 {
				c, peer = peer, c
			}
			require.NoError(t, c.CloseRead())
			require.NoError(t, c.CloseWrite())
			if _, err := peer.Write([]byte("hello")); err != nil { // the end has arrived there
				require.ErrorIs(t, err, syscall.EPIPE)
			}
			require.NoError(t, peer.Close())
			require.Eventually(t, func() bool { return c.stream.s.Status().Ended }, patience, time.Millisecond)
			for range 2 {
				_, err := c.Read(make([]byte, 1))
				require.Equal(t, io.EOF, err)
			}
			require.Zero(t, c.Stats().ChecksumErrors)
			require.Zero(t, peer.Stats().ChecksumErrors)
		}
	})
}
