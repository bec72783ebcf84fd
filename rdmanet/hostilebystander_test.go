package rdmanet

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/ring"
)

// A traveller is a bystander that moves bytes all the time, and looks at every one.
type traveller struct {
	client, server *Conn
	moved          atomic.Int64
	done           chan error
}

func startTraveller(t *testing.T) *traveller {
	b := &traveller{done: make(chan error, 2)}
	b.client, b.server = pair(t)
	go func() { b.done <- b.write() }()
	go func() { b.done <- b.read() }()
	return b
}

// stamp fills b with what belongs at a place of the stream, a multiple of its length.
func stamp(b []byte, at int64) {
	for i := range b {
		b[i] = byte(at/int64(len(b))*7 + int64(i))
	}
}

const travelled = 1024 // bytes of one message

func (b *traveller) write() error {
	msg := make([]byte, travelled)
	for at := int64(0); ; at += travelled {
		stamp(msg, at)
		if _, err := b.client.Write(msg); err != nil {
			return nil // closed
		}
	}
}

func (b *traveller) read() error {
	got, want := make([]byte, travelled), make([]byte, travelled)
	for at := int64(0); ; at += travelled {
		for n := 0; n < len(got); {
			m, err := b.server.Read(got[n:])
			if err != nil {
				return nil
			}
			n += m
		}
		if stamp(want, at); string(got) != string(want) {
			return fmt.Errorf("the bytes at %d of the stream have changed", at)
		}
		b.moved.Add(travelled)
	}
}

func (b *traveller) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, b.client.Close())
	require.NoError(t, b.server.Close())
	require.NoError(t, errors.Join(<-b.done, <-b.done))
}

// A company is a peer that is there beside a bystander, for a moment: one that lies, and
// one that does as much and is honest.
type company struct {
	name         string
	lies, honest func(t *testing.T, l *Listener)
}

func companies() []company {
	// visit is a connection of which the peer does something; it ends from either side.
	visit := func(do func(t *testing.T, p *wirePeer, victim *Conn)) func(*testing.T, *Listener) {
		return func(t *testing.T, l *Listener) {
			p := newWirePeer(t, wireConfig{})
			ev := p.dial(l.addr.AddrPort())
			require.Equal(t, cm.Established, ev.Type, "%v", ev)
			victim, err := l.AcceptConn()
			require.NoError(t, err)
			p.warm()
			do(t, p, victim)
			requireClosed(t, victim)
			p.close()
		}
	}
	lie := func(tell func(p *wirePeer)) func(*testing.T, *Listener) {
		return visit(func(t *testing.T, p *wirePeer, victim *Conn) {
			tell(p)
			require.ErrorIs(t, lastWord(victim), ErrProtocol)
		})
	}
	honest := visit(func(t *testing.T, p *wirePeer, victim *Conn) {
		p.text("hello")
		require.Equal(t, "hello", string(readFull(t, victim, 5)))
	})
	// burst is as many messages as there are receives, and a Read that takes them in.
	burst := func(ring func(p *wirePeer, i int)) func(*testing.T, *Listener) {
		return visit(func(t *testing.T, p *wirePeer, victim *Conn) {
			for i := range wireDepth - 1 {
				ring(p, i)
			}
			look(victim)
		})
	}
	refused := func(code cm.RefusalCode, change func(b []byte) []byte) func(*testing.T, *Listener) {
		return func(t *testing.T, l *Listener) {
			p := newWirePeer(t, greeting{change: change}.config(flavour{}))
			ev := p.dial(l.addr.AddrPort())
			var no *cm.RefusedError
			require.ErrorAs(t, ev.Err, &no)
			require.Equal(t, code, no.Code)
			p.close()
		}
	}
	return []company{
		{"handshakes", refused(cm.RefusedMalformed, setAt(12, uint32(0))), honest},
		{"versions of the future", refused(cm.RefusedVersion, func(b []byte) []byte { b[4], b[5] = 9, 9; return b }), honest},
		{"doorbells", lie(func(p *wirePeer) { p.data(p.victim.Size + 1) }), honest},
		{"credits", lie(func(p *wirePeer) { p.credit(ring.Credit{Consumed: 1 << 40, Reposted: wireDepth, Size: wireRing}) }), honest},
		{"messages of no length", burst(func(p *wirePeer, _ int) { p.kind(ring.KindKeepAlive) }), burst(func(p *wirePeer, i int) {
			p.write(ring.DataOffset+uint64(i), []byte{1})
			p.data(1)
		})},
		{"bytes that change", visit(func(t *testing.T, p *wirePeer, victim *Conn) {
			p.data(1000)
			for range 20 {
				p.write(ring.DataOffset, make([]byte, 1000))
			}
			readFull(t, victim, 1000)
		}), visit(func(t *testing.T, p *wirePeer, victim *Conn) {
			for i := range 20 {
				p.write(ring.DataOffset+50*uint64(i), make([]byte, 50))
			}
			p.data(1000)
			readFull(t, victim, 1000)
		})},
	}
}

// TestHostileBystanders has a connection move bytes beside peers that lie, and beside honest
// ones that do as much: it goes on, and none of its bytes changes. TestTimingBystanders
// measures how much it moves.
func TestHostileBystanders(t *testing.T) {
	onSoftware(t)
	const visits = 10
	for _, c := range companies() {
		t.Run(c.name, func(t *testing.T) {
			by := startTraveller(t)
			defer by.stop(t)
			l := flavour{}.newListener(t)
			for _, come := range []func(*testing.T, *Listener){c.lies, c.honest} {
				for range visits {
					come(t, l)
				}
				before := by.moved.Load()
				require.Eventually(t, func() bool { return by.moved.Load() > before }, patience, time.Millisecond, "the bystander stands still")
			}
		})
	}
}
