package link

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/link/hello"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// TestHostileReplay: another process repeats a dialer's first word. It gets a lane of its own, on which
// nothing of the dialer's can be reached, and the dialer does not notice.
func TestHostileReplay(t *testing.T) {
	for name, lie := range map[string]func(t *testing.T, b *bed, dialer, listener *laneEnd){
		"Whole":     replayWhole,
		"OwnMemory": replayNames,
	} {
		t.Run(name, func(t *testing.T) {
			eachFlavour(t, func(t *testing.T, cfg Config) {
				cfg.Idle = 2 * patience
				b := newBed(t, cfg)
				client, server := b.pair()
				lie(t, b, client.e, server.e)
				within(t, "the dialer's streams", func() {
					say(t, client, server)
					say(t, server, client)
					next, nextServer := b.pair()
					require.Same(t, client.e, next.e, "the dialer has lost its lane")
					say(t, next, nextServer)
				})
			})
		})
	}
}

// replayWhole repeats all of it, so that the listener writes its records to the dialer's memory: the
// other queue pair has no access to that, and its lane ends.
func replayWhole(t *testing.T, b *bed, dialer, _ *laneEnd) {
	first := helloOf(dialer)
	p := newWirePeer(t, lane.RoleDialer, wireConfig{device: b.l.cfg.CM.Device, hello: func([]byte) []byte { return first.Encode() }})
	ev := p.ask(b.l.Addr())
	require.Equal(t, cm.Established, ev.Type, "%v", ev)
	answer, err := hello.Parse(ev.Param.PrivateData)
	require.NoError(t, err)
	require.Equal(t, first.Link, answer.Link)
	p.epoch, p.records, p.rkey, p.places = first.Epoch, answer.Records, answer.RKey, uint32(answer.Places)
	p.record(lane.Record{Kind: lane.KindWant, Count: 1}, nil) // which PLACES would answer
	p.cutOff()
}

// replayNames repeats the epoch and the link, and has memory of its own: it has what any
// dialer has.
func replayNames(t *testing.T, b *bed, dialer, listener *laneEnd) {
	first := helloOf(dialer)
	var p *wirePeer
	p = newWirePeer(t, lane.RoleDialer, wireConfig{device: b.l.cfg.CM.Device, hello: func(own []byte) []byte {
		p.epoch, p.link = first.Epoch, uint64(first.Link)
		said := first.Encode()
		copy(own[32:36], said[32:36])
		copy(own[40:48], said[40:48])
		return own
	}})
	p.dial(b.l.Addr())
	s := p.open()
	server := b.accept()
	require.NotSame(t, listener, server.e)
	p.write(s, []byte("hello"))
	got := make([]byte, 5)
	within(t, "Read", func() {
		_, err := io.ReadFull(server, got)
		require.NoError(t, err)
	})
	require.Equal(t, "hello", string(got))
	p.vanish()
	within(t, "the end of the other lane", func() { <-server.e.done })
	require.NoError(t, server.Close())
}

// helloOf returns what e has said first.
func helloOf(e *laneEnd) hello.Word { return e.p.hello(e.cfg, e.cfg.Streams, e.epoch, e.peer.Link) }
