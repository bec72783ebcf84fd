package rdmanet

import (
	"context"
	"encoding/binary"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/ring"
)

// A greeting is a way to shake hands, good or bad.
type greeting struct {
	name   string
	change func(b []byte) []byte // of an honest handshake
	code   cm.RefusalCode        // what a listener answers; 0 accepts
	want   error                 // what a dialer returns
}

// setAt returns a change that puts v at an offset.
func setAt[T uint8 | uint32 | uint64](off int, v T) func(b []byte) []byte {
	return func(b []byte) []byte {
		switch v := any(v).(type) {
		case uint8:
			b[off] = v
		case uint32:
			binary.LittleEndian.PutUint32(b[off:], v)
		case uint64:
			binary.LittleEndian.PutUint64(b[off:], v)
		}
		return b
	}
}

func greetings() []greeting {
	const malformed, version = cm.RefusedMalformed, cm.RefusedVersion
	versions := func(low, high, length uint8) func(b []byte) []byte {
		return func(b []byte) []byte {
			b = append(b, make([]byte, 8)...)
			b[4], b[5], b[6] = high, low, length
			return b
		}
	}
	return []greeting{
		{"as it should be", func(b []byte) []byte { return b }, 0, nil},
		{"padded with zeros", func(b []byte) []byte { return append(b, make([]byte, 8)...) }, 0, nil},
		{"unknown features", func(b []byte) []byte { b[11] = 0xff; return b }, 0, nil},
		{"versions 1 to 9", versions(1, 9, 56), 0, nil},

		{"version 2", versions(2, 2, 56), version, cm.ErrVersion},
		{"versions 2 to 255", versions(2, 255, 56), version, cm.ErrVersion},
		{"version 2 with a layout unknown", versions(2, 2, 0), version, cm.ErrVersion},
		{"version 0", versions(0, 0, 48), malformed, ErrProtocol},
		{"versions 0 to 1", versions(0, 1, 48), malformed, ErrProtocol},
		{"versions in the wrong order", versions(2, 1, 48), malformed, ErrProtocol},

		{"nothing", func([]byte) []byte { return nil }, malformed, ErrProtocol},
		{"zeros", func([]byte) []byte { return make([]byte, 56) }, malformed, ErrProtocol},
		{"another protocol", func([]byte) []byte { return []byte("GET / HTTP/1.1\r\nHost: example\r\n\r\n") }, malformed, ErrProtocol},
		{"a refusal", func([]byte) []byte { return []byte("RDMX\x01\x01\x06\x00bye") }, malformed, ErrProtocol},
		{"the magic alone", func(b []byte) []byte { return b[:4] }, malformed, ErrProtocol},
		// Most devices pad private data, so the fields behind the cut are zeros.
		{"cut in the middle", func(b []byte) []byte { return b[:33] }, malformed, ErrProtocol},
		{"a byte behind", func(b []byte) []byte { return append(b, 0, 0, 1) }, malformed, ErrProtocol},
		{"length 47", setAt(6, uint8(47)), malformed, ErrProtocol},
		{"length 49", setAt(6, uint8(49)), malformed, ErrProtocol},
		{"length 255", setAt(6, uint8(255)), malformed, ErrProtocol},
		{"reserved byte", setAt(7, uint8(1)), malformed, ErrProtocol},
		{"reserved word", setAt(36, uint32(1)), malformed, ErrProtocol},
		{"no features", setAt(8, uint32(0)), malformed, ErrProtocol}, // the other way round on iWARP
		{"depth 0", setAt(12, uint32(0)), malformed, ErrProtocol},
		{"depth too small", setAt(12, uint32(ring.MinDepth-1)), malformed, ErrProtocol},
		{"depth too large", setAt(12, uint32(ring.MaxDepth+1)), malformed, ErrProtocol},
		{"depth without end", setAt(12, ^uint32(0)), malformed, ErrProtocol},
		{"size 0", setAt(28, uint32(0)), malformed, ErrProtocol},
		{"size too small", setAt(28, uint32(ring.MinSize/2)), malformed, ErrProtocol},
		{"size no power of two", setAt(28, uint32(ring.MinSize+1)), malformed, ErrProtocol},
		{"size above the largest", setAt(28, uint32(2*wireMaxRing)), malformed, ErrProtocol},
		{"largest size 0", setAt(32, uint32(0)), malformed, ErrProtocol},
		{"largest size no power of two", setAt(32, uint32(wireMaxRing-1)), malformed, ErrProtocol},
		{"largest size too large", setAt(32, uint32(2*ring.MaxSize)), malformed, ErrProtocol},
		{"memory beyond the address space", setAt(16, ^uint64(0)-ring.DataOffset), malformed, ErrProtocol},
	}
}

// config is a wirePeer's that greets so.
func (g greeting) config(fl flavour) wireConfig {
	return wireConfig{device: fl.dialer.Device, hello: func(h cm.Handshake) []byte {
		b, err := h.MarshalBinary()
		if err != nil {
			panic(err)
		}
		if g.name == "no features" {
			b[8] ^= 1
			return b
		}
		return g.change(b)
	}}
}

// eachDevice is eachFlavour for what depends on the device alone.
func eachDevice(t *testing.T, f func(t *testing.T, fl flavour)) {
	for _, fl := range flavours() {
		if fl.name == "default" || fl.name == "iwarp" {
			t.Run(fl.name, func(t *testing.T) { f(t, fl) })
		}
	}
}

// TestHostileDialerHandshake has dialers that shake hands badly: they are refused
// and counted, Accept does not notice, and honest ones are served beside them.
func TestHostileDialerHandshake(t *testing.T) {
	eachDevice(t, func(t *testing.T, fl flavour) {
		l := fl.newListener(t)
		by := newBystander(t, fl)
		for _, g := range greetings() {
			t.Run(g.name, func(t *testing.T) {
				by.begin(t)
				defer by.check(t)
				before, memory := l.Stats(), MemoryInUse()
				p := newWirePeer(t, g.config(fl))
				ev := p.dial(l.addr.AddrPort())
				if g.code == 0 {
					require.Equal(t, cm.Established, ev.Type, "%v", ev)
					c, err := l.AcceptConn()
					require.NoError(t, err)
					p.text("hello")
					require.Equal(t, "hello", string(readFull(t, c, 5)))
					requireClosed(t, c)
					return
				}
				require.Equal(t, cm.Rejected, ev.Type, "%v", ev)
				var refused *cm.RefusedError
				require.ErrorAs(t, ev.Err, &refused)
				require.Equal(t, g.code, refused.Code)
				require.NotEmpty(t, refused.Text)
				after := l.Stats()
				require.Equal(t, before.Refused+1, after.Refused)
				require.Equal(t, before.Established, after.Established)
				require.Equal(t, before.Failed, after.Failed)
				require.LessOrEqual(t, MemoryInUse(), memory, "a refused dialer had cost a ring")
			})
		}
		requireServed(t, fl, l)
	})
}

// requireServed sees that the next connection that Accept returns is the one dialled now.
func requireServed(t testing.TB, fl flavour, l *Listener) {
	t.Helper()
	c, err := fl.dialer.dial(context.Background(), "rdma", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, l.SetDeadline(time.Now().Add(patience)))
	s, err := l.AcceptConn()
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, l.SetDeadline(time.Time{}))
	require.Equal(t, c.LocalAddr().String(), s.RemoteAddr().String())
	_, err = c.Write([]byte("hello"))
	require.NoError(t, err)
	require.Equal(t, "hello", string(readFull(t, s, 5)))
}

// TestHostileListenerHandshake has listeners that shake hands badly.
func TestHostileListenerHandshake(t *testing.T) {
	eachDevice(t, func(t *testing.T, fl flavour) {
		for _, g := range greetings() {
			t.Run(g.name, func(t *testing.T) {
				p := newWirePeer(t, g.config(fl))
				done := fl.dialBehind(p.listen())
				p.request()
				p.accept()
				d := <-done
				if g.want == nil {
					require.NoError(t, d.err)
					p.text("hello")
					require.Equal(t, "hello", string(readFull(t, d.conn, 5)))
					requireClosed(t, d.conn)
					return
				}
				requireDialError(t, d, g.want)
				p.cutOff()
			})
		}
	})
}

// TestHostileLeavers has dialers that leave in the middle of the handshake, at
// every moment there is.
func TestHostileLeavers(t *testing.T) {
	eachDevice(t, func(t *testing.T, fl flavour) {
		l := fl.newListener(t)
		for i := range 40 {
			p := newWirePeer(t, wireConfig{device: fl.dialer.Device})
			p.ask(l.addr.AddrPort())
			for range i * i * 4 {
				p.id.State() // a while, of no fixed length
			}
			p.close()
		}
		// Some may have been established before they left; they are at their end.
		requireServedAmong(t, fl, l)
		s := l.Stats()
		require.LessOrEqual(t, s.Established, uint64(41))
		if !overLinks { // where their version is refused
			require.Zero(t, s.Refused)
		}
		require.Zero(t, s.Malformed)
	})
}

// requireServedAmong is requireServed where connections that are over may come
// before. They cannot be told by their address: its port may have been used again.
func requireServedAmong(t testing.TB, fl flavour, l *Listener) {
	t.Helper()
	c, err := fl.dialer.dial(context.Background(), "rdma", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write([]byte("hello"))
	require.NoError(t, err)
	require.NoError(t, l.SetDeadline(time.Now().Add(patience)))
	defer func() { _ = l.SetDeadline(time.Time{}) }() // the next may be a while in coming
	for served := false; !served; {
		s, err := l.AcceptConn()
		require.NoError(t, err)
		b := make([]byte, 5)
		require.NoError(t, s.SetReadDeadline(time.Now().Add(patience)))
		_, err = io.ReadFull(s, b)
		served = err == nil
		if served {
			require.Equal(t, "hello", string(b))
		} else {
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		}
		requireClosed(t, s)
	}
}
