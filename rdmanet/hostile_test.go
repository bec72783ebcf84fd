package rdmanet

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring"
)

// TestHostileWire has a peer that lies: its connection ends, with an error of the right type, and another connection of the same listener does not notice.
func TestHostileWire(t *testing.T) {
	var lies []lie
	lies = append(append(append(lies, dataLies()...), creditLies()...), verbsLies()...)
	eachWireFlavour(t, func(t *testing.T, fl flavour) {
		by := newBystander(t, fl)
		for _, victims := range wireVictims {
			t.Run(victims.name, func(t *testing.T) {
				for _, l := range lies {
					t.Run(l.name, func(t *testing.T) {
						by.begin(t)
						defer by.check(t)
						fastest(t, 3, "the end of a lie", verdict, func() time.Duration {
							p, victim := victims.connect(t, fl, l.cfg)
							l.tell(t, p, victim)
							told := time.Now()
							requireLastWord(t, victim, l.want)
							if l.want == ErrProtocol {
								p.cutOff() // without waiting for Close
							}
							took := time.Since(told)
							requireClosed(t, victim)
							return took
						})
					})
				}
			})
		}
	})
}

// requireEnd sees that a Conn fails with want and is torn down by Close.
func requireEnd(t testing.TB, c *Conn, want error) {
	t.Helper()
	requireLastWord(t, c, want)
	requireClosed(t, c)
}

// requireLastWord sees that a Conn fails with want.
func requireLastWord(t testing.TB, c *Conn, want error) {
	t.Helper()
	var err error
	inTime(t, soon, "the last call", func() { err = lastWord(c) })
	var op *net.OpError
	require.ErrorAs(t, err, &op)
	require.ErrorIs(t, err, want)
	assert.False(t, op.Timeout())
	// And so it stays.
	_, err = c.Write([]byte{1})
	require.Error(t, err)
}

// requireClosed closes c and waits until nothing is left of it.
func requireClosed(t testing.TB, c *Conn) {
	t.Helper()
	require.NoError(t, c.Close())
	select {
	case <-c.torn:
	case <-time.After(patience):
		t.Fatal("the connection was not torn down")
	}
}

// lastWord reads until an error; if that was the orderly end, it writes until one.
func lastWord(c *Conn) error {
	buf := make([]byte, 512)
	for {
		if _, err := c.Read(buf); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
	}
	for {
		if _, err := c.Write([]byte{1}); err != nil {
			return err
		}
	}
}

// A bystander is a connection that has nothing to do with what goes on beside it.
type bystander struct {
	client, server *Conn
	parked         []byte // written and not yet read
}

func newBystander(t testing.TB, fl flavour) *bystander {
	t.Helper()
	b := new(bystander)
	b.client, b.server = fl.pair(t)
	return b
}

// begin leaves bytes in both rings, where a stray WRITE would hit them.
func (b *bystander) begin(t testing.TB) {
	t.Helper()
	b.parked = make([]byte, 1000)
	for i := range b.parked {
		b.parked[i] = byte(i*7 + len(t.Name()))
	}
	for _, c := range []*Conn{b.client, b.server} {
		_, err := c.Write(b.parked)
		require.NoError(t, err)
	}
}

// check reads them and exchanges some more.
func (b *bystander) check(t testing.TB) {
	t.Helper()
	require.Equal(t, b.parked, readFull(t, b.client, len(b.parked)))
	require.Equal(t, b.parked, readFull(t, b.server, len(b.parked)))
	_, err := b.client.Write(b.parked)
	require.NoError(t, err)
	_, err = b.server.Write(readFull(t, b.server, len(b.parked)))
	require.NoError(t, err)
	require.Equal(t, b.parked, readFull(t, b.client, len(b.parked)))
}

// TestHostileRKey has a peer that knows address and key of another connection's
// ring: they open nothing to it.
func TestHostileRKey(t *testing.T) {
	eachWireFlavour(t, func(t *testing.T, fl flavour) {
		for _, victims := range wireVictims {
			t.Run(victims.name, func(t *testing.T) {
				by := newBystander(t, fl)
				by.begin(t)
				p, victim := victims.connect(t, fl, wireConfig{})
				for _, other := range []*Conn{by.client, by.server} {
					wr := verbs.SendWR{
						Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline | verbs.SendSignaled, Inline: make([]byte, 64),
						RemoteAddr: other.ep.mr.Addr() + ring.DataOffset, RKey: other.ep.mr.RKey(),
					}
					require.NotEqual(t, verbs.WCSuccess, p.status(wr)) // the second is flushed
				}
				requireEnd(t, victim, syscall.ECONNRESET)
				by.check(t)
			})
		}
	})
}

// TestHostileToleratedWire has what looks odd and is allowed.
func TestHostileToleratedWire(t *testing.T) {
	ignored := map[string]func(p *wirePeer){
		"second FIN":          func(p *wirePeer) { p.kind(ring.KindFIN); p.kind(ring.KindFIN) },
		"keepalive after FIN": func(p *wirePeer) { p.kind(ring.KindFIN); p.kind(ring.KindKeepAlive) },
		"credit after FIN": func(p *wirePeer) {
			p.kind(ring.KindFIN)
			p.credit(ring.Credit{Reposted: wireDepth, Size: wireRing})
		},
		"same credit twice": func(p *wirePeer) {
			c := ring.Credit{Reposted: wireDepth, Size: wireRing}
			p.credit(c)
			p.credit(c)
			p.kind(ring.KindFIN)
		},
	}
	eachWireFlavour(t, func(t *testing.T, fl flavour) {
		for name, do := range ignored {
			t.Run(name, func(t *testing.T) {
				p, victim := acceptedVictim(t, fl, wireConfig{})
				p.text("hello")
				do(p)
				got, err := io.ReadAll(victim)
				require.NoError(t, err)
				require.Equal(t, "hello", string(got))
				_, err = victim.Write([]byte("still here"))
				require.NoError(t, err)
				require.Equal(t, ring.Doorbell{Kind: ring.KindData, Len: 10}, p.heard())
				requireClosed(t, victim)
			})
		}
		t.Run("second Close", func(t *testing.T) {
			p, victim := acceptedVictim(t, fl, wireConfig{})
			p.kind(ring.KindClose)
			p.kind(ring.KindClose)
			p.kind(ring.KindFIN)
			requireEnd(t, victim, syscall.EPIPE)
		})
		t.Run("reset", func(t *testing.T) {
			p, victim := acceptedVictim(t, fl, wireConfig{})
			p.text("lost or not")
			p.kind(ring.KindReset)
			p.data(0) // nothing is looked at any more
			requireEnd(t, victim, syscall.ECONNRESET)
		})
	})
}

// TestHostileBytesChange has a peer that changes bytes after it has announced them:
// what Read has returned stays as it was.
func TestHostileBytesChange(t *testing.T) {
	eachWireFlavour(t, func(t *testing.T, fl flavour) {
		p, victim := acceptedVictim(t, fl, wireConfig{})
		p.text("first")
		first := readFull(t, victim, 5)
		p.place(ring.DataOffset, []byte("XXXXX"))
		require.Equal(t, "first", string(first))
		p.write(ring.DataOffset+5, []byte("again"))
		p.data(5)
		p.place(ring.DataOffset+5, []byte("YYYYY"))
		require.Equal(t, "YYYYY", string(readFull(t, victim, 5)), "announced bytes are the peer's until they are read")
	})
}

// TestHostileVanish has a peer that is gone without Close.
func TestHostileVanish(t *testing.T) {
	eachWireFlavour(t, func(t *testing.T, fl flavour) {
		for _, victims := range wireVictims {
			t.Run(victims.name, func(t *testing.T) {
				p, victim := victims.connect(t, fl, wireConfig{})
				p.text("last words")
				p.settle()
				p.vanish()
				require.Equal(t, "last words", string(readFull(t, victim, 10)))
				_, err := victim.Read(make([]byte, 1))
				require.ErrorIs(t, err, ErrPeerGone)
				requireEnd(t, victim, syscall.ECONNRESET)
			})
			t.Run(victims.name+" while reading", func(t *testing.T) {
				p, victim := victims.connect(t, fl, wireConfig{})
				done := make(chan error, 1)
				go func() { done <- lastWord(victim) }()
				p.text("x")
				p.vanish()
				inTime(t, soon, "Read", func() { require.ErrorIs(t, <-done, syscall.ECONNRESET) })
				requireEnd(t, victim, syscall.ECONNRESET)
			})
			t.Run(victims.name+" while writing", func(t *testing.T) {
				p, victim := victims.connect(t, fl, wireConfig{})
				fill(t, victim)
				done := make(chan error, 1)
				go func() {
					_, err := victim.Write([]byte{1})
					done <- err
				}()
				p.vanish()
				inTime(t, soon, "Write", func() { require.ErrorIs(t, <-done, syscall.ECONNRESET) })
				requireEnd(t, victim, syscall.ECONNRESET)
			})
		}
	})
}
