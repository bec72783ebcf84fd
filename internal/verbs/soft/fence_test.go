//go:build linux && (amd64 || arm64)

package soft

import (
	"math"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/cacheline"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// needRemoteFences waits until the process takes part.
func needRemoteFences(t *testing.T) {
	t.Helper()
	shm.WantRemoteFences()
	eventually(t, shm.RemoteFences.Load)
}

// post sends a message from a to b.
func post(a, b *side, data []byte) {
	wr := writeImm(b, 0, data, 0)
	wr.Flags |= verbs.SendSignaled
	a.post(wr)
	a.next()
}

// makeUnfenced makes the receiver one that has been awake for long.
func makeUnfenced(s *side) {
	s.cq.mu.Lock()
	defer s.cq.mu.Unlock()
	s.cq.settle()
	s.cq.armed = shm.ArmedNot
	s.cq.countStreak(s.qp.in, unfencedStreak)
}

// fenceTime is how long TestUnfencedPublication looks for a lost message. make test-fence
// has it look for longer, where it has two processors to itself.
const fenceTime, fenceVar = 2 * time.Second, "RDMANET_FENCE_TIME"

// spin waits until at holds want. It does not sleep, since who sleeps comes too late to meet
// anybody, unless it has waited for so long that the other cannot be running.
func spin(at *atomic.Int64, want int64) {
	alone := runtime.GOMAXPROCS(0) == 1
	for i := 1; at.Load() < want; i++ {
		switch {
		case alone:
			runtime.Gosched()
		case i%(1<<18) == 0:
			time.Sleep(time.Microsecond)
		}
	}
}

// TestUnfencedPublication: a receiver that goes to sleep while its sender publishes
// without a fence either finds the message or is woken. Without the fence that the
// receiver calls for, some of these messages are lost.
func TestUnfencedPublication(t *testing.T) {
	needRemoteFences(t)
	a, b := newConnected(t, defaults())
	look := fenceTime
	if s := os.Getenv(fenceVar); s != "" {
		var err error
		look, err = time.ParseDuration(s)
		require.NoError(t, err)
	}
	const over = math.MaxInt64
	// The publication is late where the processor has to fetch the lines before it.
	data := make([]byte, 8*cacheline.Size)
	var start, posted atomic.Int64
	defer start.Store(over)
	go func() {
		for i := int64(1); ; i++ {
			spin(&start, i)
			if start.Load() == over {
				return
			}
			post(a, b, data)
			posted.Store(i)
		}
	}()
	woken := uint64(0)
	i := int64(1)
	for end := time.Now().Add(look); i <= 1000 || time.Now().Before(end); i++ {
		b.postRecv(1, 0)
		clear(b.bytes(0, len(data)))
		makeUnfenced(b)
		start.Store(i)
		for range i % 1000 { // meets the post at ever different moments
			_ = start.Load()
		}
		require.NoError(t, b.cq.ReqNotify(false))
		n, err := b.cq.Poll(make([]verbs.WC, 4))
		require.NoError(t, err)
		spin(&posted, i)
		if n == 0 {
			require.Greater(t, a.qp.QPStats().WakeupsSent, woken, "nobody woke the receiver of message %d, which did not see it", i)
			b.next()
		}
		woken = a.qp.QPStats().WakeupsSent
	}
	t.Logf("%d messages", i-1)
}

// TestUnfencedReceiver: a receiver that has taken enough without sleeping has its sender do without
// fences and wake nobody, until it arms its CQ.
func TestUnfencedReceiver(t *testing.T) {
	needRemoteFences(t)
	a, b := newConnected(t, defaults())
	armed := func() uint32 { return atomic.LoadUint32(b.qp.in.Armed) }
	send := func(n int) {
		for range n {
			b.postRecv(1, 0)
			post(a, b, nil)
			b.next()
		}
	}
	send(unfencedStreak - 1)
	require.EqualValues(t, shm.ArmedNot, armed())
	send(1)
	require.EqualValues(t, shm.ArmedUnfenced, armed())
	before := a.qp.QPStats().WakeupsSent
	send(1)
	require.Equal(t, before, a.qp.QPStats().WakeupsSent)

	require.NoError(t, b.cq.ReqNotify(false))
	require.EqualValues(t, shm.ArmedAny, armed())
	send(1)
	require.Equal(t, before+1, a.qp.QPStats().WakeupsSent)
	require.EqualValues(t, shm.ArmedNot, armed())
	send(unfencedStreak - 2)
	require.EqualValues(t, shm.ArmedNot, armed(), "it slept not long ago")
	send(1)
	require.EqualValues(t, shm.ArmedUnfenced, armed())
	require.True(t, b.cq.takeEvent(), "the event that came meanwhile is kept")
}

// TestArmedIsFenced: messages that are taken while the CQ is armed do not disarm it.
func TestArmedIsFenced(t *testing.T) {
	needRemoteFences(t)
	a, b := newConnected(t, defaults())
	require.NoError(t, b.cq.ReqNotify(true)) // for solicited ones, which these are not
	for range 2 * unfencedStreak {
		b.postRecv(1, 0)
		post(a, b, nil)
		b.next()
	}
	require.EqualValues(t, shm.ArmedSolicited, atomic.LoadUint32(b.qp.in.Armed))
}
