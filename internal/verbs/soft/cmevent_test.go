//go:build linux && (amd64 || arm64)

package soft

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/stretchr/testify/require"
)

func TestEventQueueKeepsOrder(t *testing.T) {
	const producers, each = 8, 200
	var (
		q       eventQueue
		inside  int
		next    [producers]uint16
		arrived sync.WaitGroup
	)
	arrived.Add(producers * each)
	q.init(func(ev verbs.CMEvent) {
		inside++
		require.Equal(t, 1, inside) // the race detector sees it too
		p := ev.Param.QPNum
		require.Equal(t, next[p], uint16(ev.Reason))
		next[p]++
		inside--
		arrived.Done()
	})
	for p := range producers {
		go func() {
			for i := range each {
				q.push(verbs.CMEvent{Param: verbs.ConnParam{QPNum: uint32(p)}, Reason: verbs.RejectReason(i)})
				if i%2 == 0 {
					q.start()
				} else {
					q.deliver()
				}
			}
		}()
	}
	arrived.Wait()
	q.close()
}

func TestEventQueueCloseWaitsForTheSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q eventQueue
		release := make(chan struct{})
		delivered, closed := 0, false
		q.init(func(verbs.CMEvent) {
			delivered++
			<-release
			require.False(t, closed)
		})
		q.push(verbs.CMEvent{})
		q.start()
		dropped := false
		q.pushThen(verbs.CMEvent{}, func(ok bool) { dropped = !ok })
		synctest.Wait()
		done := make(chan struct{})
		go func() {
			q.close()
			closed = true
			close(done)
		}()
		synctest.Wait()
		close(release)
		<-done
		require.True(t, dropped)

		// And nothing comes afterwards.
		q.push(verbs.CMEvent{})
		q.deliver()
		require.Equal(t, 1, delivered)
	})
}

func TestEventQueueCloseInsideSink(t *testing.T) {
	var a, b eventQueue
	done := make(chan struct{})
	a.init(func(verbs.CMEvent) {
		b.push(verbs.CMEvent{})
		b.deliver()
	})
	b.init(func(verbs.CMEvent) {
		b.close() // its own
		a.close() // one further up the stack
		close(done)
	})
	a.push(verbs.CMEvent{})
	a.start()
	<-done
	require.False(t, insideSink())
}

func TestEventQueueHold(t *testing.T) {
	var q eventQueue
	var got []verbs.CMEventType
	q.init(func(ev verbs.CMEvent) { got = append(got, ev.Type) })
	q.hold()
	q.push(verbs.CMEvent{Type: verbs.CMEstablished})
	q.deliver()
	q.start()
	require.Empty(t, got)
	q.drain()
	require.Equal(t, []verbs.CMEventType{verbs.CMEstablished}, got)
}
