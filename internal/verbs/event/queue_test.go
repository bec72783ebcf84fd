package event

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
)

func TestQueueKeepsOrder(t *testing.T) {
	const producers, each = 8, 200
	var (
		q       Queue
		inside  int
		next    [producers]uint16
		arrived sync.WaitGroup
	)
	arrived.Add(producers * each)
	q.Init(func(ev driver.CMEvent) {
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
				q.Push(driver.CMEvent{Param: driver.ConnParam{QPNum: uint32(p)}, Reason: driver.RejectReason(i)})
				q.Deliver()
			}
		}()
	}
	arrived.Wait()
	q.Close()
}

func TestQueueCloseWaitsForTheSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue
		release := make(chan struct{})
		delivered, closed := 0, false
		q.Init(func(driver.CMEvent) {
			delivered++
			<-release
			require.False(t, closed)
		})
		q.Push(driver.CMEvent{})
		go q.Deliver()
		dropped := false
		q.PushThen(driver.CMEvent{Type: driver.CMDisconnected}, func(ok bool) { dropped = !ok })
		synctest.Wait()
		done := make(chan struct{})
		var left []driver.CMEvent
		go func() {
			left = q.Close()
			closed = true
			close(done)
		}()
		synctest.Wait()
		close(release)
		<-done
		require.True(t, dropped)
		require.Len(t, left, 1)
		require.Equal(t, driver.CMDisconnected, left[0].Type)

		// And nothing comes afterwards.
		require.False(t, q.Push(driver.CMEvent{}))
		dropped = false
		require.False(t, q.PushThen(driver.CMEvent{}, func(ok bool) { dropped = !ok }))
		require.True(t, dropped)
		q.Deliver()
		require.Equal(t, 1, delivered)
	})
}

func TestQueueCloseInsideSink(t *testing.T) {
	var a, b Queue
	done := make(chan struct{})
	a.Init(func(driver.CMEvent) {
		b.Push(driver.CMEvent{})
		b.Deliver()
	})
	b.Init(func(driver.CMEvent) {
		b.Close() // its own
		a.Close() // one further up the stack
		close(done)
	})
	a.Push(driver.CMEvent{})
	a.Deliver()
	<-done
	require.False(t, insideSink())
}

func TestQueueHold(t *testing.T) {
	var q Queue
	var got []driver.CMEventType
	q.Init(func(ev driver.CMEvent) { got = append(got, ev.Type) })
	q.Hold()
	q.Push(driver.CMEvent{Type: driver.CMEstablished})
	q.Deliver()
	require.Empty(t, got)
	q.Release()
	require.Equal(t, []driver.CMEventType{driver.CMEstablished}, got)
}

// Who closes a held queue need not release it, and may be the one who would.
func TestQueueCloseHeld(t *testing.T) {
	var q Queue
	q.Init(func(driver.CMEvent) { t.Error("delivered") })
	q.Hold()
	q.Push(driver.CMEvent{Type: driver.CMDeviceRemoval})
	require.Len(t, q.Close(), 1)
	q.Release()
	require.Empty(t, q.Close())
}

// What a sink causes follows what it is told, and comes after what is queued already.
func TestQueueOrderInsideSink(t *testing.T) {
	var q Queue
	var got []driver.CMEventType
	const returned = 99
	q.Init(func(ev driver.CMEvent) {
		got = append(got, ev.Type)
		if ev.Type == driver.CMAddrResolved {
			require.True(t, q.Push(driver.CMEvent{Type: driver.CMDisconnected}))
			q.Deliver()
			got = append(got, returned)
		}
	})
	q.Push(driver.CMEvent{Type: driver.CMAddrResolved})
	q.Push(driver.CMEvent{Type: driver.CMRouteResolved})
	q.Deliver()
	require.Equal(t, []driver.CMEventType{driver.CMAddrResolved, returned, driver.CMRouteResolved, driver.CMDisconnected}, got)
}
