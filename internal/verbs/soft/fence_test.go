//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
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
// without a fence either finds the message or is woken, by its sender where that is of its
// process. Without the fence that the receiver calls for, some of these messages are lost.
func TestUnfencedPublication(t *testing.T) {
	needRemoteFences(t)
	look := fenceTime
	if s := os.Getenv(fenceVar); s != "" {
		var err error
		look, err = time.ParseDuration(s)
		require.NoError(t, err)
	}
	for _, local := range []bool{true, false} {
		t.Run(fmt.Sprintf("local=%v", local), func(t *testing.T) { meetUnfenced(t, local, look/2) })
	}
}

// meetUnfenced sends for as long as look says to a receiver that takes its sender for local, or not.
func meetUnfenced(t *testing.T, local bool, look time.Duration) {
	a, b := newConnected(t, defaults())
	setLocal(b, local)
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
	woken, late := uint64(0), 0
	i := int64(1)
	for end := time.Now().Add(look); i <= 1000 || time.Now().Before(end); i++ {
		b.postRecv(1, 0)
		clear(b.bytes(0, len(data)))
		makeUnfenced(b)
		b.cq.takeEvent() // the last one's
		start.Store(i)
		for range i % 1000 { // meets the post at ever different moments
			_ = start.Load()
		}
		require.NoError(t, b.cq.ReqNotify(false))
		n, err := b.cq.Poll(make([]verbs.WC, 4))
		require.NoError(t, err)
		spin(&posted, i)
		sent := a.qp.WakeupsSent()
		if n == 0 {
			if sent == woken {
				require.False(t, local, "nobody woke the receiver of message %d, which did not see it", i)
				b.waitEvent()
				late++
			}
			b.next()
		}
		woken = sent
	}
	t.Logf("%d messages, %d of them found later", i-1, late)
}

// waitEvent waits until the CQ has an event.
func (s *side) waitEvent() {
	s.t.Helper()
	require.NoError(s.t, s.ch.SetReadDeadline(time.Now().Add(patience)))
	_, err := s.ch.GetEvent()
	require.NoError(s.t, err)
}

// setLocal has the receiver take its sender for one of its process, or of another.
func setLocal(s *side, local bool) {
	s.cq.mu.Lock()
	defer s.cq.mu.Unlock()
	s.qp.in.Local = local
}

// TestLookAgain: what an unfenced sender of another process has published while the CQ was armed, and
// has woken nobody for, is found, if it is what the CQ was armed for.
func TestLookAgain(t *testing.T) {
	needRemoteFences(t)
	for _, solicited := range []bool{false, true} {
		t.Run(fmt.Sprintf("solicited=%v", solicited), func(t *testing.T) {
			a, b := newConnected(t, defaults())
			require.True(t, b.qp.in.Local)
			makeUnfenced(b)
			require.NoError(t, b.cq.ReqNotify(false))
			require.Nil(t, b.cq.again, "the fence of its own process misses nobody")

			setLocal(b, false)
			for range 2 {
				makeUnfenced(b)
				b.postRecv(2, 0)
				if solicited {
					post(a, b, nil)
				}
				wr := writeImm(b, 0, nil, 0)
				wr.Flags |= verbs.SendSolicited | verbs.SendSignaled
				a.post(wr)
				a.next()
				require.NoError(t, b.cq.ReqNotify(solicited))
				b.waitEvent()
				b.next()
				if solicited {
					b.next()
				}
				require.Zero(t, a.qp.WakeupsSent())
			}
		})
	}
}

// TestLookAgainUnsolicited: what the CQ was not armed for signals nobody when it is found.
func TestLookAgainUnsolicited(t *testing.T) {
	needRemoteFences(t)
	a, b := newConnected(t, defaults())
	setLocal(b, false)
	makeUnfenced(b)
	b.postRecv(1, 0)
	post(a, b, nil)
	require.NoError(t, b.cq.ReqNotify(true))
	b.cq.lookAgain()
	require.False(t, b.cq.takeEvent())
	b.next()
}

// TestLookAgainAfterViolation: a peer that breaks the rules where nobody polls loses its connection.
func TestLookAgainAfterViolation(t *testing.T) {
	needRemoteFences(t)
	a, b := newConnected(t, defaults())
	setLocal(b, false)
	makeUnfenced(b)
	a.qp.mu.Lock()
	a.qp.peer.out.Publish(shm.EntryWriteImm, 0, 0) // there is no receive for it
	a.qp.mu.Unlock()
	require.NoError(t, b.cq.ReqNotify(false))
	eventually(t, func() bool { return b.qp.State() == verbs.QPErr })
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
