//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

func TestQueueOrder(t *testing.T) {
	var q eventQueue
	var got []verbs.CMEventType
	q.init(func(ev verbs.CMEvent) {
		got = append(got, ev.Type)
		if ev.Type == verbs.CMAddrResolved {
			// What a sink causes follows what it is told.
			require.True(t, q.push(verbs.CMEvent{Type: verbs.CMDisconnected}))
			q.deliver()
			got = append(got, 99)
		}
	})
	q.push(verbs.CMEvent{Type: verbs.CMAddrResolved})
	q.push(verbs.CMEvent{Type: verbs.CMRouteResolved})
	q.deliver()
	assert.Equal(t, []verbs.CMEventType{verbs.CMAddrResolved, 99, verbs.CMRouteResolved, verbs.CMDisconnected}, got)
}

func TestQueueCloseWaitsForTheSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q eventQueue
		inside, proceed, closed := make(chan struct{}), make(chan struct{}), make(chan struct{})
		q.init(func(verbs.CMEvent) {
			close(inside)
			<-proceed
		})
		q.push(verbs.CMEvent{Type: verbs.CMEstablished})
		q.push(verbs.CMEvent{Type: verbs.CMDisconnected})
		go q.deliver()
		<-inside
		var dropped []verbs.CMEvent
		go func() {
			dropped = q.close()
			close(closed)
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("close did not wait")
		default:
		}
		close(proceed)
		<-closed
		require.Len(t, dropped, 1)
		assert.Equal(t, verbs.CMDisconnected, dropped[0].Type)
		assert.False(t, q.push(verbs.CMEvent{}), "closed")
	})
}

func TestQueueCloseInsideASink(t *testing.T) {
	var q, other eventQueue
	done := make(chan struct{})
	other.init(func(verbs.CMEvent) {})
	q.init(func(verbs.CMEvent) {
		q.close() // would wait for itself
		other.close()
		close(done)
	})
	q.push(verbs.CMEvent{})
	q.deliver()
	<-done
	assert.False(t, insideSink())
}
