package rdmanet

import (
	"context"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/ring"
)

// greets is a wirePeer's configuration that says these features besides the usual.
func greets(more cm.Features) wireConfig {
	return wireConfig{hello: func(h cm.Handshake) []byte {
		h.Features |= more
		b, err := h.MarshalBinary()
		if err != nil {
			panic(err)
		}
		return b
	}}
}

// A wireStream is what a wirePeer sends on a connection with checksums, frame by frame. It
// makes good frames; what it does with them is not always good.
type wireStream struct {
	*wirePeer
	sum uint32
	pos uint64 // in the ring; it does not come to its end
}

// frame makes the next frame of the stream.
func (s *wireStream) frame(text string) []byte {
	s.sum = ring.Checksum(s.sum, []byte(text))
	b := make([]byte, ring.FrameLen(len(text)))
	ring.FrameHeader{Len: uint32(len(text)), Sum: s.sum}.Put(b)
	copy(b[ring.FrameHeaderLen:], text)
	return b
}

// place writes bytes to where the next message belongs, and announces them.
func (s *wireStream) place(b []byte) {
	s.t.Helper()
	s.write(ring.DataOffset+s.pos, b)
	s.data(uint32(len(b)))
	s.pos += uint64(len(b))
}

func (s *wireStream) end(k ring.Kind, sum uint32) {
	s.t.Helper()
	s.bell(ring.Doorbell{Kind: k, Len: sum & ring.SumBits}.FramedImm())
}

// heardCorrupt waits for the doorbell that says so, after others.
func (s *wireStream) heardCorrupt() {
	s.t.Helper()
	for {
		wc := s.next(s.recvCQ)
		d, err := ring.ParseFramedDoorbell(s.taken(&wc))
		require.NoError(s.t, err)
		if d.Kind == ring.KindCorrupt {
			return
		}
	}
}

// TestChecksumWire has a peer that speaks by itself what docs/PROTOCOL.md says, and then
// does not.
func TestChecksumWire(t *testing.T) {
	const good = "good so far"
	for _, c := range []struct {
		name string
		send func(s *wireStream)
		want error // nil: the end of the stream
		also string
	}{
		{"a good stream", func(s *wireStream) {
			s.place(s.frame("; and so on"))
			s.end(ring.KindFIN, s.sum)
		}, nil, "; and so on"},
		{"a good end", func(s *wireStream) { s.end(ring.KindClose, s.sum) }, nil, ""},
		{"FIN and Close", func(s *wireStream) {
			s.end(ring.KindFIN, s.sum)
			s.end(ring.KindClose, s.sum)
		}, nil, ""},
		{"two frames in the wrong order", func(s *wireStream) {
			first, second := s.frame("first"), s.frame("other")
			s.place(second)
			s.place(first)
		}, ErrChecksum, ""},
		{"a frame twice", func(s *wireStream) {
			f := s.frame("again")
			s.place(f)
			s.place(f)
		}, ErrChecksum, "again"},
		{"a frame that is lost", func(s *wireStream) {
			s.frame("lost")
			s.place(s.frame("found"))
		}, ErrChecksum, ""},
		{"the last frame lost, and FIN", func(s *wireStream) {
			s.frame("lost")
			s.end(ring.KindFIN, s.sum)
		}, ErrChecksum, ""},
		{"the last frame lost, and Close", func(s *wireStream) {
			s.frame("lost")
			s.end(ring.KindClose, s.sum)
		}, ErrChecksum, ""},
		{"a doorbell without its WRITE", func(s *wireStream) {
			s.data(uint32(len(s.frame("never written"))))
		}, ErrChecksum, ""},
		{"a WRITE to a wrong place", func(s *wireStream) {
			f := s.frame("displaced")
			s.write(ring.DataOffset+s.pos+16, f)
			s.data(uint32(len(f)))
		}, ErrChecksum, ""},
		{"a frame that another overwrote", func(s *wireStream) {
			s.write(ring.DataOffset+s.pos, s.frame("first"))
			f := s.frame("other")
			s.write(ring.DataOffset+s.pos, f)
			s.data(uint32(len(f)))
		}, ErrChecksum, ""},
		{"a header that says nothing follows", func(s *wireStream) { s.place(make([]byte, 16)) }, ErrChecksum, ""},
		{"a header that says more than came", func(s *wireStream) {
			f := s.frame("seventeen bytes..")
			s.write(ring.DataOffset+s.pos, f)
			s.data(16)
		}, ErrChecksum, ""},
		{"a header beyond all", func(s *wireStream) {
			f := s.frame("all ones")
			copy(f, "\xff\xff\xff\xff")
			s.place(f)
		}, ErrChecksum, ""},
		{"the peer found it", func(s *wireStream) { s.kind(ring.KindCorrupt) }, ErrChecksum, ""},
		{"the peer found it after its end", func(s *wireStream) {
			s.end(ring.KindFIN, s.sum)
			s.kind(ring.KindCorrupt)
		}, nil, ""},
		{"data that is no frame", func(s *wireStream) { s.data(5) }, ErrProtocol, ""},
		{"data of 16 bytes and one", func(s *wireStream) { s.data(17) }, ErrProtocol, ""},
		{"Corrupt with a length", func(s *wireStream) { s.bell(uint32(ring.KindCorrupt)<<28 | 1) }, ErrProtocol, ""},
		{"FIN with the grown bit", func(s *wireStream) { s.bell(uint32(ring.KindFIN)<<28 | 1<<27) }, ErrProtocol, ""},
		{"Reset with a length", func(s *wireStream) { s.bell(uint32(ring.KindReset)<<28 | 1) }, ErrProtocol, ""},
		{"a kind beyond", func(s *wireStream) { s.kind(8) }, ErrProtocol, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachDevice(t, func(t *testing.T, fl flavour) {
				fl.dialer.Logger = quiet
				for _, victims := range wireVictims {
					p, victim := victims.connect(t, fl, greets(cm.FeatureChecksum|cm.FeatureWantChecksum))
					require.True(t, victim.Checksum())
					s := &wireStream{wirePeer: p}
					s.place(s.frame(good))
					c.send(s)
					s.settle()
					var got []byte
					var err error
					within(t, patience, "Read", func() { got, err = io.ReadAll(victim) })
					require.Equal(t, good+c.also, string(got), "%s: what came before", victims.name)
					if c.want == nil {
						require.NoError(t, err)
						continue
					}
					require.ErrorIs(t, err, c.want)
					if c.want != ErrChecksum {
						continue
					}
					requireChecksumError(t, err)
					if victim.Stats().ChecksumErrors > 0 && !victim.term.peerClosed() {
						s.heardCorrupt()
					}
				}
			})
		})
	}
}

// TestChecksumEachBit has a peer send one frame a bit of which is wrong, for every bit of
// it, or with -short or the race detector every seventh, one connection after the other.
func TestChecksumEachBit(t *testing.T) {
	step := 1
	if raceEnabled || testing.Short() {
		step = 7
	}
	for bit := 0; bit < 8*(ring.FrameHeaderLen+3); bit += step {
		p, victim := acceptedVictim(t, flavour{}, greets(cm.FeatureChecksum|cm.FeatureWantChecksum))
		s := &wireStream{wirePeer: p}
		f := s.frame("abc")
		f[bit/8] ^= 1 << (bit % 8)
		s.place(f)
		n, err := victim.Read(make([]byte, 100))
		requireChecksumError(t, err)
		require.Zero(t, n)
		requireClosed(t, victim)
		p.close()
	}
}

// TestChecksumWaitsForRoom has an owner that frees less than a frame takes: who waits to
// write goes on waiting, without looking again and again.
func TestChecksumWaitsForRoom(t *testing.T) {
	p, victim := dialledVictim(t, flavour{}, greets(cm.FeatureChecksum|cm.FeatureWantChecksum))
	n := 0
	again(t, "Write", func() bool { return victim.send.ring.SentBytes() >= wireRing }, func() {
		require.NoError(t, victim.SetWriteDeadline(time.Now().Add(20*time.Millisecond)))
		m, err := victim.Write(make([]byte, 2*wireRing))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		n += m
	})
	require.EqualValues(t, n, victim.Stats().BytesWritten)
	sent, messages := victim.send.ring.SentBytes(), uint32(victim.Stats().MessagesSent)
	require.EqualValues(t, wireRing, sent)
	for credits, free := range []uint64{15, 16} {
		p.credit(ring.Credit{Consumed: free, Reposted: wireDepth + messages, Size: wireRing})
		within(t, patience, "the credit", func() {
			for victim.Stats().CreditsReceived == uint64(credits) {
				look(victim)
			}
		})
		require.Equal(t, free == 16, victim.send.try(), "%d bytes are free", free)
	}
	n = 0
	again(t, "Write", func() bool { return n != 0 }, func() {
		var err error
		require.NoError(t, victim.SetWriteDeadline(time.Now().Add(20*time.Millisecond)))
		n, err = victim.Write(make([]byte, 9))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	})
	require.Equal(t, 8, n)
}

// TestChecksumKindUnknown has a connection without checksums hear what belongs to one with.
func TestChecksumKindUnknown(t *testing.T) {
	p, victim := acceptedVictim(t, flavour{}, greets(cm.FeatureChecksum))
	require.False(t, victim.Checksum())
	p.kind(ring.KindCorrupt)
	requireEnd(t, victim, ErrProtocol)
}

// TestChecksumNegotiation has each kind of dialer meet each kind of listener. Who is old
// does not know of checksums.
func TestChecksumNegotiation(t *testing.T) {
	t.Run("both new", func(t *testing.T) {
		for _, c := range []struct{ asks, requires bool }{{}, {asks: true}, {requires: true}, {asks: true, requires: true}} {
			client, server := flavour{dialer: Dialer{Checksum: c.asks}, listen: ListenConfig{Checksum: c.requires}}.pair(t)
			require.Equal(t, c.asks || c.requires, client.Checksum())
			require.Equal(t, c.asks || c.requires, server.Checksum())
			write(t, client, 10)
			readFull(t, server, 10)
		}
	})
	t.Run("an old dialer", func(t *testing.T) {
		p, victim := acceptedVictim(t, flavour{}, wireConfig{})
		require.False(t, victim.Checksum())
		p.text("hello")
		require.Equal(t, "hello", string(readFull(t, victim, 5)))
	})
	t.Run("an old dialer, required", func(t *testing.T) {
		fl := flavour{listen: ListenConfig{Checksum: true}}
		l := fl.newListener(t)
		p := newWirePeer(t, wireConfig{})
		ev := p.dial(l.addr.AddrPort())
		require.Equal(t, cm.Rejected, ev.Type, "%v", ev)
		var refused *cm.RefusedError
		require.ErrorAs(t, ev.Err, &refused)
		require.Equal(t, cm.RefusedChecksum, refused.Code)
		require.Contains(t, refused.Text, "update it")
		require.ErrorIs(t, ev.Err, ErrNoChecksum)
		require.EqualValues(t, 1, l.Stats().Refused)
		requireServed(t, fl, l)
	})
	t.Run("an old listener", func(t *testing.T) {
		p, victim := dialledVictim(t, flavour{}, wireConfig{})
		require.False(t, victim.Checksum())
		p.text("hello")
		require.Equal(t, "hello", string(readFull(t, victim, 5)))
	})
	t.Run("an old listener, asked", func(t *testing.T) {
		p := newWirePeer(t, wireConfig{})
		done := flavour{dialer: Dialer{Checksum: true}}.dialBehind(p.listen())
		p.request()
		p.accept()
		d := <-done
		requireOpError(t, d.err, "dial", []string{"update it, or do without"}, ErrNoChecksum)
		require.Nil(t, d.conn)
		p.cutOff()
	})
	t.Run("a peer that wants what it does not know", func(t *testing.T) {
		l := flavour{}.newListener(t)
		p := newWirePeer(t, wireConfig{hello: func(h cm.Handshake) []byte {
			b, err := h.MarshalBinary()
			require.NoError(t, err)
			b[8] |= byte(cm.FeatureWantChecksum)
			return b
		}})
		ev := p.dial(l.addr.AddrPort())
		require.Equal(t, cm.Rejected, ev.Type, "%v", ev)
		require.ErrorIs(t, ev.Err, cm.ErrProtocol)
	})
}

// TestChecksumOnTCP has dialers with checksums on the networks of TCP: they get them, or no
// connection.
func TestChecksumOnTCP(t *testing.T) {
	onSoftware(t)
	d := Dialer{Checksum: true, Logger: quiet, RetryRDMA: -1, OnFallback: func(e *FallbackError) { t.Error(e) }}
	both := overBoth{dialer: d, lc: ListenConfig{Logger: quiet}}
	l := both.newListener(t)
	client, server, err := both.meet(l)
	require.NoError(t, err)
	require.True(t, client.(*Conn).Checksum() && server.(*Conn).Checksum())
	require.NoError(t, client.Close())
	require.NoError(t, server.Close())

	alone := overBoth{lc: ListenConfig{Logger: quiet, Device: noSuchDevice}}.newListener(t)
	_, err = d.Dial("tcp", alone.Addr().String())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)

	// A listener takes TCP clients as ever.
	requires := overBoth{lc: ListenConfig{Logger: quiet, Checksum: true}, dialer: Dialer{Logger: quiet, Device: noSuchDevice}}
	client, server, err = requires.meet(requires.newListener(t))
	require.NoError(t, err)
	require.NoError(t, client.Close())
	require.NoError(t, server.Close())
	c, err := new(Dialer).dial(context.Background(), "tcp", l.Addr().String())
	require.NoError(t, err)
	require.False(t, c.Checksum())
	require.NoError(t, c.Close())
}
