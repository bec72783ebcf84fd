package link

import (
	"fmt"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// TestStaleRequest: a peer's kernel may still know a former connection by the number of the
// dialer's QP, and refuses whatever comes by that number (STALE_CONN). The dial asks again by
// another QP, and succeeds; the listener never sees the first request.
func TestStaleRequest(t *testing.T) {
	needFailing(t)
	var mu sync.Mutex
	var numbers []uint32 // of the QPs that asked, one after the other
	failing.OnEvent(func(ev *driver.CMEvent) bool {
		mu.Lock()
		defer mu.Unlock()
		switch ev.Type {
		case driver.CMConnectRequest:
			numbers = append(numbers, ev.Param.QPNum)
			if ev.Param.QPNum == numbers[0] {
				_ = ev.ID.Reject(nil)
				return false
			}
		case driver.CMRejected: // as the driver for real devices tells it
			ev.Reason = 10
			ev.Err = fmt.Errorf("refused, reason %v: %w: %w", ev.Reason, verbs.ErrTryAgain, syscall.ECONNREFUSED)
		}
		return true
	})
	t.Cleanup(func() { failing.OnEvent(nil) })
	b := newBed(t, Config{CM: cm.Options{Device: failing.Name()}})
	client, server := b.pair()
	say(t, client, server)
	say(t, server, client)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, numbers, 2)
	require.NotZero(t, numbers[0])
	require.NotEqual(t, numbers[0], numbers[1])
	require.Len(t, b.l.Lanes(), 1)
}
