package link

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
)

// TestHandshakeTimeout: a dialer that was answered and says nothing loses its lane in that time,
// though nobody waits for its place.
func TestHandshakeTimeout(t *testing.T) {
	b := newBed(t, Config{HandshakeTimeout: time.Second})
	events := make(chan *cm.Event, 4)
	id, err := newEventHandler(events).channel().CreateID(b.links.cfg.CM)
	require.NoError(t, err)
	require.NoError(t, id.Resolve(b.ctx(), Target{}.Src, b.l.Addr()))
	p, err := newEndpoint(id, &b.links.cfg)
	require.NoError(t, err)
	defer func() {
		require.NoError(t, p.destroy())
		require.NoError(t, id.Close())
	}()
	mine := p.hello(&b.links.cfg, 100, 1, 1)
	began := time.Now()
	require.NoError(t, id.Connect(&cm.ConnParam{PrivateData: mine.put()}, 0))
	_, err = established(b.ctx(), events)
	require.NoError(t, err)
	within(t, "the end of the lane", func() {
		for ev := range events {
			if ev.Type == cm.Disconnected {
				return
			}
		}
	})
	require.Less(t, time.Since(began), DefaultHandshakeTimeout)
	require.Equal(t, Requests{Failed: 1}, b.l.Requests())
}

// TestStrangersAreCounted: who connects with another first word is refused.
func TestStrangersAreCounted(t *testing.T) {
	b := newBed(t, Config{})
	events := make(chan *cm.Event, 4)
	id, err := newEventHandler(events).channel().CreateID(b.links.cfg.CM)
	require.NoError(t, err)
	require.NoError(t, id.Resolve(b.ctx(), Target{}.Src, b.l.Addr()))
	p, err := newEndpoint(id, &b.links.cfg)
	require.NoError(t, err)
	defer func() {
		require.NoError(t, p.destroy())
		require.NoError(t, id.Close())
	}()
	require.NoError(t, id.Connect(&cm.ConnParam{PrivateData: []byte("GET / HTTP/1.1")}, 0))
	_, err = established(b.ctx(), events)
	require.Error(t, err)
	require.Equal(t, Requests{Refused: 1}, b.l.Requests())
}
