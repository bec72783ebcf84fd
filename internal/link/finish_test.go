package link

import (
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// onFinish returns a channel that is closed when s is finished.
func onFinish(s *Stream) <-chan struct{} {
	done := make(chan struct{})
	s.OnFinish(sync.OnceFunc(func() { close(done) }))
	return done
}

func requireFinished(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("the stream was not finished")
	}
}

// stopped holds what every goroutine of the peer needs, as if its process were stopped, and
// returns how it goes on.
func stopped(t *testing.T, peer *Stream) (goOn func()) {
	peer.e.mu.Lock()
	goOn = sync.OnceFunc(peer.e.mu.Unlock)
	t.Cleanup(goOn)
	return goOn
}

// TestFinishedWhilePeerIsStopped: a closed stream waits for the peer's device alone. What was
// written arrives when the peer goes on, and so does the end; only then the memory comes back.
func TestFinishedWhilePeerIsStopped(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		client, server := b.pair()
		goOn := stopped(t, server)
		_, err := client.Write([]byte("while you slept"))
		require.NoError(t, err)
		done := onFinish(client)
		require.NoError(t, client.Close())
		requireFinished(t, done)
		client.e.mu.Lock()
		freed := client.end.freed
		client.e.mu.Unlock()
		require.False(t, freed, "the peer may still write to the ring")
		goOn()
		requireRead(t, server, "while you slept")
		require.Eventually(t, func() bool {
			client.e.mu.Lock()
			defer client.e.mu.Unlock()
			return client.end.freed && len(client.e.ends.leaving) == 0
		}, patience, time.Millisecond)
	})
}

// A silentCQ tells of no completion while it is silent.
type silentCQ struct {
	verbs.CQ
	silent bool // the lane's lock guards it
}

func (q *silentCQ) Poll(wcs []verbs.WC) (int, error) {
	if q.silent {
		return 0, nil
	}
	return q.CQ.Poll(wcs)
}

// TestFinishWithin: a stream whose end no device confirms is given up in time, and told its end
// all the same when the peer goes on.
func TestFinishWithin(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		client, server := b.pair()
		goOn := stopped(t, server)
		e := client.e
		e.mu.Lock()
		cq := &silentCQ{e.sq.cq, true}
		e.sq.cq = cq
		e.mu.Unlock()
		done := onFinish(client)
		require.NoError(t, client.Close())
		client.FinishWithin(time.Hour)
		client.FinishWithin(0) // which does not count any more
		select {
		case <-done:
			t.Fatal("no device has confirmed the end")
		case <-time.After(10 * time.Millisecond):
		}
		e.mu.Lock()
		client.end.limit.Reset(0)
		e.mu.Unlock()
		requireFinished(t, done)
		e.mu.Lock()
		cq.silent = false
		e.mu.Unlock()
		goOn()
		requireRead(t, server, "")
	})
}

func requireRead(t *testing.T, s *Stream, want string) {
	t.Helper()
	require.NoError(t, s.SetReadDeadline(time.Now().Add(patience)))
	got, err := io.ReadAll(s)
	require.NoError(t, err)
	require.Equal(t, want, string(got))
}

// TestFinishedCountsNoMore: what a stream has counted is summed up when it is finished, so what comes for it behind
// that does not count.
func TestFinishedCountsNoMore(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		client, server := newBed(t, cfg).pair()
		goOn := stopped(t, server)
		done := onFinish(client)
		require.NoError(t, client.Close())
		requireFinished(t, done)
		counts := func() [6]uint64 {
			s := client.Status()
			return [...]uint64{s.Sent, s.Received, s.CreditsGot, s.RecordsSent, s.RecordsGot, s.Wakeups + s.Quiet}
		}
		finished := counts()
		_, err := server.send([]byte("x")) // its lock is held, and it has not heard of the end
		require.NoError(t, err)
		goOn()
		requireEnded(t, client)
		require.Equal(t, finished, counts())
	})
}

// requireEnded waits until the peer of s has ended it.
func requireEnded(t *testing.T, s *Stream) {
	t.Helper()
	require.Eventually(t, func() bool {
		s.e.mu.Lock()
		defer s.e.mu.Unlock()
		return s.st.Quiet()
	}, patience, time.Millisecond)
}
