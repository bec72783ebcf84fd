package link

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// owe has the lane owe answers until the function that is returned is called.
func (f *fakeLane) owe() (answer func()) {
	owes := make(chan struct{})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.owes = owes
	f.late.Store(true)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.owes = nil
		f.late.Store(false)
		close(owes)
	}
}

// TestDialAwaitsAnswers: the next dial goes by another lane when the listener has answered what
// was opened on the first.
func TestDialAwaitsAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lanes, _ := fakeBeside(t, Config{Lanes: 2}, time.Millisecond, 2, 1<<20)
		dialed(t, l, 3)
		require.Equal(t, []int{2, 1}, loads(lanes()))
		time.AfterFunc(besidePatience/2, lanes()[0].owe())
		require.Equal(t, besidePatience/2, dialed(t, l, 1))
		require.Equal(t, []int{2, 2}, loads(lanes()))
		lanes()[1].end()
		lanes()[1].owe()
		require.Zero(t, dialed(t, l, 1), "a lane is in order by itself")
		require.Equal(t, []int{2, 2}, loads(lanes()))
		require.NoError(t, l.Close())
	})
}

// TestDialThatIsTooLateForAnswers: one whose context ends before the answers are there has failed, and
// soon, whether they come or not.
func TestDialThatIsTooLateForAnswers(t *testing.T) {
	for _, comes := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l, lanes, _ := fakeBeside(t, Config{Lanes: 2}, time.Millisecond, 2, 1<<20)
			dialed(t, l, 3)
			answer := lanes()[0].owe()
			if comes {
				time.AfterFunc(besidePatience*3/4, answer)
			}
			ctx, cancel := context.WithTimeout(t.Context(), besidePatience/2)
			defer cancel()
			began := time.Now()
			_, err := l.Dial(ctx, towards(1))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.LessOrEqual(t, time.Since(began), besidePatience)
			require.Equal(t, []int{2, 1}, loads(lanes()))
			l.mu.Lock()
			for _, f := range lanes() {
				require.Zero(t, f.k.users)
			}
			l.mu.Unlock()
			require.NoError(t, l.Close())
		})
	}
}

// TestDialWithTheCrowd: of many dials at once the next goes by the lane that owes answers, and waits
// for none, until that has more than twice as many streams.
func TestDialWithTheCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lanes, _ := fakeBeside(t, Config{Lanes: 2}, time.Millisecond, 2, 1<<20)
		dialed(t, l, 2*crowded-1)
		require.Equal(t, []int{crowded, crowded - 1}, loads(lanes()))
		answered := lanes()[0].owe()
		require.Zero(t, dialed(t, l, crowded+1))
		require.Equal(t, []int{2*crowded + 1, crowded - 1}, loads(lanes()))
		time.AfterFunc(besidePatience/2, answered)
		require.Equal(t, besidePatience/2, dialed(t, l, 1))
		require.Equal(t, []int{2*crowded + 1, crowded}, loads(lanes()))
		lanes()[0].owe()
		lanes()[1].owe()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := l.Dial(ctx, towards(1))
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded, "both owe answers")
		l.mu.Lock()
		for _, f := range lanes() {
			require.Zero(t, f.k.users)
		}
		l.mu.Unlock()
		require.NoError(t, l.Close())
	})
}

// TestDialOfAListenerThatDoesNotAnswer: a dial that has waited for a while goes by the lane that
// owes answers. If several do it waits on, as long as it may.
func TestDialOfAListenerThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lanes, _ := fakeBeside(t, Config{Lanes: 3}, time.Millisecond, 3, 1<<20)
		dialed(t, l, 5)
		require.Equal(t, []int{2, 2, 1}, loads(lanes()))
		first := lanes()[0].owe()
		require.Equal(t, besidePatience, dialed(t, l, 1))
		require.Equal(t, []int{3, 2, 1}, loads(lanes()))
		second := lanes()[1].owe()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := l.Dial(ctx, towards(1))
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, []int{3, 2, 1}, loads(lanes()))
		time.AfterFunc(time.Second, first)
		require.Equal(t, time.Second, dialed(t, l, 1))
		require.Equal(t, []int{3, 3, 1}, loads(lanes()))
		second()
		dialed(t, l, 2)
		require.Equal(t, []int{3, 3, 3}, loads(lanes()))
		l.mu.Lock()
		for _, f := range lanes() {
			require.Zero(t, f.k.users)
		}
		l.mu.Unlock()
		require.NoError(t, l.Close())
	})
}

// TestDialOfTwoLanesThatOweAnswers: the lane that the dial was to go by owes some as well. It goes by
// the other only when it does not any more.
func TestDialOfTwoLanesThatOweAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lanes, _ := fakeBeside(t, Config{Lanes: 2}, time.Millisecond, 2, 1<<20)
		dialed(t, l, 3)
		require.Equal(t, []int{2, 1}, loads(lanes()))
		lanes()[0].owe()
		time.AfterFunc(time.Second, lanes()[1].owe())
		require.Equal(t, time.Second, dialed(t, l, 1))
		require.Equal(t, []int{3, 1}, loads(lanes()))
		require.NoError(t, l.Close())
	})
}

// TestDialMovesWhenOneLaneOwesAnswers: of the lanes that owed answers when the dial had waited for a
// while, the last one takes it, whichever that is.
func TestDialMovesWhenOneLaneOwesAnswers(t *testing.T) {
	for last := range 2 {
		synctest.Test(t, func(t *testing.T) {
			l, lanes, _ := fakeBeside(t, Config{Lanes: 3}, time.Millisecond, 3, 1<<20)
			dialed(t, l, 5)
			require.Equal(t, []int{2, 2, 1}, loads(lanes()))
			lanes()[last].owe()
			time.AfterFunc(time.Second, lanes()[1-last].owe())
			require.Equal(t, time.Second, dialed(t, l, 1))
			want := []int{2, 2, 1}
			want[last]++
			require.Equal(t, want, loads(lanes()))
			require.NoError(t, l.Close())
		})
	}
}

// TestDialAfterALaneHasLeft: a lane that takes no more dials may owe answers yet. A dial waits for them
// as for others, but not for ever.
func TestDialAfterALaneHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lanes, _ := fakeBeside(t, Config{Lanes: 1}, 0, 1, 1<<20)
		dialed(t, l, 1)
		left := lanes()[0]
		left.k.retired(nil)
		answer := left.owe()
		time.AfterFunc(leftPatience/2, answer)
		require.Equal(t, leftPatience/2, dialed(t, l, 1), "on another lane")
		answer = left.owe()
		require.Equal(t, besidePatience+leftPatience, dialed(t, l, 1), "it does not answer")
		require.Equal(t, []int{1, 2}, loads(lanes()))
		left.end()
		require.Zero(t, dialed(t, l, 1), "it has no streams")
		answer()
		require.NoError(t, l.Close())
	})
	synctest.Test(t, func(t *testing.T) { // which was the only lane, and fails
		l, lanes, _ := fakeBeside(t, Config{Lanes: 1}, 0, 1, 1<<20)
		dialed(t, l, 1)
		left := lanes()[0]
		left.k.retired(nil)
		left.owe()
		l.mu.Lock()
		require.Len(t, l.links, 1)
		l.mu.Unlock()
		left.k.gone(&laneEnd{})
		l.mu.Lock()
		require.Empty(t, l.links)
		l.mu.Unlock()
		require.Zero(t, dialed(t, l, 1))
		require.NoError(t, l.Close())
	})
}

// inOrder dials and accepts so many streams, and sees that they come in the order in which they
// were dialled. It returns over how many lanes they are spread.
func (b *bed) inOrder(n int) (lanes int) {
	b.t.Helper()
	var clients []*Stream
	seen := map[*laneEnd]bool{}
	for range n {
		c := b.dial()
		seen[c.e] = true
		clients = append(clients, c)
	}
	for i, c := range clients {
		s := b.accept()
		require.Equal(b.t, c.LocalAddr().String(), s.RemoteAddr().String(), "stream %d", i)
		require.NoError(b.t, s.Close())
		require.NoError(b.t, c.Close())
	}
	return len(seen)
}

// TestAcceptInOrder: streams that are dialled one after the other come to Accept so, whatever
// lanes they are on.
func TestAcceptInOrder(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		cfg.Lanes, cfg.Idle = 4, time.Minute
		b := newBed(t, cfg)
		most, began := 0, time.Now()
		for i := 0; i < 20 || most == 1 && time.Since(began) < patience; i++ { // lanes may come up slowly
			most = max(most, b.inOrder(8))
		}
		require.Greater(t, most, 1, "all went by one lane")
	})
}

// TestAcceptInOrderBesideOthers: also while others dial.
func TestAcceptInOrderBesideOthers(t *testing.T) {
	b := newBed(t, Config{Lanes: 4})
	stop := make(chan struct{})
	var others sync.WaitGroup
	var beside atomic.Uint64
	mine := map[string]int{}
	var mu sync.Mutex
	for range 3 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				s, err := b.links.Dial(b.ctx(), Target{Dst: b.l.Addr()})
				if err != nil {
					t.Error(err)
					return
				}
				beside.Add(1)
				_ = s.Close()
			}
		})
	}
	const n = 200
	dialled := make(chan struct{})
	go func() {
		defer close(dialled)
		for i := range n {
			s, err := b.links.Dial(b.ctx(), Target{Dst: b.l.Addr()})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			mine[s.LocalAddr().String()] = i + 1
			mu.Unlock()
			defer s.Close()
		}
	}()
	var came []string
	accepted := make(chan struct{})
	ctx, cancel := context.WithCancel(b.ctx())
	go func() {
		defer close(accepted)
		for {
			s, err := b.l.Accept(ctx)
			if err != nil {
				return
			}
			came = append(came, s.RemoteAddr().String())
			defer s.Close() // so that no other gets the port
		}
	}()
	<-dialled
	close(stop)
	others.Wait()
	require.Eventually(t, func() bool {
		waiting, all := b.l.Opened()
		return waiting == 0 && all == n+beside.Load()
	}, patience, time.Millisecond)
	cancel()
	<-accepted
	last := 0
	for _, addr := range came {
		if i := mine[addr]; i > 0 {
			require.Equal(t, last+1, i)
			last = i
		}
	}
	require.Equal(t, n, last)
}

// TestAnsweredWhenAcceptable: a stream whose OPEN was answered can be accepted.
func TestAnsweredWhenAcceptable(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		for range 5 {
			b := newBed(t, cfg)
			for i := range 3 {
				client := b.dial()
				if answered := client.e.dialer.allAnswered(); answered != nil {
					within(t, "an answer", func() { <-answered })
				}
				n, _ := b.l.Opened()
				require.Equal(t, i+1, n)
			}
			for range 3 {
				require.NoError(t, b.accept().Close())
			}
		}
	})
}

// TestAnswersOfALaneThatEnds: nobody waits for them.
func TestAnswersOfALaneThatEnds(t *testing.T) {
	b := newBed(t, Config{})
	client, server := b.pair()
	say(t, server, client)
	require.Nil(t, client.e.dialer.allAnswered())
	require.Eventually(t, func() bool {
		client.e.pollNow()
		client.e.mu.Lock()
		defer client.e.mu.Unlock()
		return client.e.state.Places() > 0
	}, patience, time.Millisecond)
	server.e.mu.Lock() // it answers nothing
	again := b.dial()
	answered := again.e.dialer.allAnswered()
	again.e.fail(errGone)
	server.e.mu.Unlock()
	require.NotNil(t, answered)
	within(t, "a wait for an answer", func() { <-answered })
	require.Nil(t, again.e.dialer.allAnswered())
}

// TestAnswersInAnotherOrder: a listener that leaves one stream unanswered has dials wait, as long as
// they do, and takes no memory for those behind it.
func TestAnswersInAnotherOrder(t *testing.T) {
	e := &laneEnd{role: lane.RoleDialer}
	e.dialer.e = e
	open := func() *stream {
		s := &stream{e: e, re: new(redial)}
		e.dialer.awaitAnswer(s)
		return s
	}
	ended := func(done <-chan struct{}) bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
	require.Nil(t, e.dialer.allAnswered())
	stuck := open()
	first := e.dialer.allAnswered()
	require.Equal(t, first, e.dialer.allAnswered())
	var later <-chan struct{}
	for range lane.MaxStream + 10 {
		s := open()
		if done := e.dialer.allAnswered(); done != nil {
			later = done
		}
		e.dialer.answered(s)
		e.dialer.answered(s) // once is enough
		require.LessOrEqual(t, len(e.dialer.answers.waits), int(lane.MaxStream))
	}
	require.False(t, ended(first))
	require.False(t, ended(later))
	next := open()
	e.dialer.answered(stuck)
	require.True(t, ended(first))
	require.True(t, ended(later))
	last := e.dialer.allAnswered()
	require.False(t, ended(last))
	e.dialer.answered(next)
	require.True(t, ended(last))
	require.Nil(t, e.dialer.allAnswered())
	require.Empty(t, e.dialer.answers.waits)
}
