package link

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/verbs/faulty"
)

// TestFirstWordUnheard: an iWARP listener that does not hear the first message is sent more, long before
// the keepalive would. The dial goes on when it has heard.
func TestFirstWordUnheard(t *testing.T) {
	needFailing(t)
	b := newBed(t, Config{
		CM:        cm.Options{Device: failingRemoteIWARP.Name()},
		KeepAlive: net.KeepAliveConfig{Enable: true, Idle: time.Hour, Interval: time.Hour, Count: 9},

		HandshakeTimeout: time.Hour,
	})
	var unheard sync.Once
	var listener *laneEnd
	var posts atomic.Int32 // the listener posts nothing meanwhile
	failingRemoteIWARP.OnAcquire(func(what string) error {
		switch what {
		case faulty.Accept:
			unheard.Do(func() {
				b.l.mu.Lock()
				for e := range b.l.lanes {
					listener = e
				}
				b.l.mu.Unlock()
				assert.Eventually(t, listener.sleeps, patience, time.Millisecond) // it polls once before
				listener.p.channel.(*faulty.CompChannel).Mute(true)
			})
		case faulty.PostSend:
			posts.Add(1)
		}
		return nil
	})
	defer failingRemoteIWARP.OnAcquire(nil)
	dialled := make(chan *Stream, 1)
	go func() { dialled <- b.dial() }()
	const first = 2 // and its READ
	require.Eventually(t, func() bool { return posts.Load() >= first+2 }, patience, time.Millisecond, "it says no more")
	require.Empty(t, dialled)
	listener.p.channel.(*faulty.CompChannel).Mute(false)
	require.Eventually(t, func() bool { return !listener.listener.silent(errGaveWay) && listener.spoke() }, patience, time.Millisecond)
	var client *Stream
	within(t, "the dial", func() { client = <-dialled })
	say(t, client, b.accept())
}

// sleeps reports whether the lane's goroutine has polled, and nobody does any more.
func (e *laneEnd) sleeps() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counts.wakeups > 0 && e.polling.role.Holder() == 0
}
