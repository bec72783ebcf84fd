package link

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDepartedWaiters: dialers that leave while they wait for their turn make nobody give way, and
// take no turn from those behind them.
func TestDepartedWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, closed := &bringUps{}, make(chan struct{})
		answered, left := come(t, b, closed, maxBringUps)
		leaves := make(chan struct{})
		gone := make(chan error, 200)
		for range cap(gone) {
			go func() { gone <- b.begin(unless(leaves)) }()
		}
		synctest.Wait()
		require.Len(t, b.waiting, cap(gone))
		time.Sleep(silentTick * (silentTicks - 1))
		close(leaves)
		synctest.Wait()
		require.Len(t, gone, cap(gone))
		for range cap(gone) {
			require.ErrorIs(t, <-gone, errDialerLeft)
		}
		require.Zero(t, len(b.waiting))
		time.Sleep(time.Hour)
		synctest.Wait()
		require.False(t, b.ticking)
		require.Zero(t, left.Load())

		require.NoError(t, b.begin(unless(closed)))
		synctest.Wait()
		require.EqualValues(t, 1, left.Load(), "one came that stays")
		require.EqualValues(t, maxBringUps, answered.Load())
		require.Equal(t, maxBringUps, b.taken)
	})
}

// TestTurnOfOneThatLeft: a place is passed on that one has got who leaves just then.
func TestTurnOfOneThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bringUps{}
		var first *arrival
		for range maxBringUps {
			require.NoError(t, b.begin(nil))
			first = &arrival{patience: silentTicks}
		}
		ended := make(chan error, 1)
		go func() {
			ended <- b.begin(func(turn <-chan struct{}) error {
				<-turn
				return errDialerLeft
			})
		}()
		synctest.Wait()
		next := make(chan error, 1)
		go func() { next <- b.begin(unless(nil)) }()
		synctest.Wait()
		b.end(first)
		require.ErrorIs(t, <-ended, errDialerLeft)
		require.NoError(t, <-next)
		require.Equal(t, maxBringUps, b.taken)
		time.Sleep(time.Hour) // until nothing ticks
	})
}

// TestTicksOfAProcessThatStoodStill: only time counts against a silent dialer in which this process
// ran. If it did not for an hour one tick is late, and the others follow as ever.
func TestTicksOfAProcessThatStoodStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, closed := &bringUps{}, make(chan struct{})
		_, left := come(t, b, closed, maxBringUps)
		b.ticking = true // by the tick below
		got := make(chan error, 1)
		go func() { got <- b.begin(unless(closed)) }()
		synctest.Wait()
		time.Sleep(time.Hour)
		b.tick()
		require.Zero(t, left.Load())
		time.Sleep(silentTick*(silentTicks-1) + silentTick/2)
		synctest.Wait()
		require.Zero(t, left.Load(), "what it has to say may lie unread")
		require.Empty(t, got)
		time.Sleep(silentTick)
		require.NoError(t, <-got)
		synctest.Wait()
		require.EqualValues(t, 1, left.Load())
	})
}

// TestDialersLeaveTheQueue: a listener learns that a dialer has left which waits for its turn, and
// makes no lane for it.
func TestDialersLeaveTheQueue(t *testing.T) {
	needFailing(t) // a network tells it when it likes
	evicted := func() { t.Error("nobody is to give way") }
	b := newBed(t, Config{HandshakeTimeout: time.Hour, OnEvict: evicted})
	nobody := make(chan struct{})
	for range maxBringUps {
		require.NoError(t, b.l.ups.begin(unless(nobody)))
	}
	waiting := func() int {
		b.l.ups.mu.Lock()
		defer b.l.ups.mu.Unlock()
		return len(b.l.ups.waiting)
	}
	const dialers = 10
	leave := b.silentDialers(dialers)
	require.Eventually(t, func() bool { return waiting() == dialers }, patience, time.Millisecond)
	leave()
	require.Eventually(t, func() bool { return waiting() == 0 && b.l.Requests().Failed == dialers }, patience, time.Millisecond)
	require.Empty(t, b.l.Lanes())
	for range maxBringUps {
		b.l.ups.end(&arrival{})
	}
	client, server := b.pair()
	say(t, client, server)
	require.Equal(t, Requests{Failed: dialers}, b.l.Requests())
	require.Eventually(t, func() bool { b.l.ups.mu.Lock(); defer b.l.ups.mu.Unlock(); return b.l.ups.taken == 0 }, patience, time.Millisecond)
}
