package link

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// TestHostileReplay: a stranger says a dialer's first word again. It gets a lane of its own, to
// which nothing of the dialer's belongs: with the dialer's memory announced the lane ends at the
// first thing that is said on it, and with memory of its own the stranger has what any dialer has.
func TestHostileReplay(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		cfg.Idle = 2 * patience
		for name, whole := range map[string]bool{"Whole": true, "OwnMemory": false} {
			t.Run(name, func(t *testing.T) {
				b := newBed(t, cfg)
				client, server := b.pair()
				e := client.e
				first := e.p.hello(e.cfg, e.cfg.Streams, e.epoch, e.peer.link)
				var p *wirePeer
				p = newWirePeer(t, lane.RoleDialer, wireConfig{device: b.l.cfg.CM.Device, hello: func(own []byte) []byte {
					said := first.put()
					p.epoch, p.link = first.epoch, uint64(first.link)
					if whole {
						return said
					}
					copy(own[32:36], said[32:36])
					copy(own[40:48], said[40:48])
					return own
				}})
				if whole {
					ev := p.ask(b.l.Addr())
					require.Equal(t, cm.Established, ev.Type, "%v", ev)
					answer, err := parseHello(ev.Param.PrivateData)
					require.NoError(t, err)
					require.Equal(t, first.link, answer.link)
					p.records, p.rkey, p.places = answer.records, answer.rkey, uint32(answer.places)
					p.record(lane.Record{Kind: lane.KindWant, Count: 1}, nil)
					p.cutOff()
				} else {
					p.dial(b.l.Addr())
					s := p.open()
					victim := b.accept()
					require.NotSame(t, server.e, victim.e)
					p.write(s, []byte("hello"))
					got := make([]byte, 5)
					_, err := io.ReadFull(victim, got)
					require.NoError(t, err)
					p.vanish()
					within(t, "the end of the stranger's lane", func() { <-victim.e.done })
					require.NoError(t, victim.Close())
				}
				say(t, client, server)
				say(t, server, client)
				next, nextServer := b.pair()
				require.Same(t, e, next.e, "the dialer goes on by its lane")
				say(t, next, nextServer)
			})
		}
	})
}
