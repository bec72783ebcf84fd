package rdmanet

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slack is how late a deadline may fire on a machine with nothing else to do.
const slack = 5 * time.Millisecond

// requireTimeoutAt checks that a call ended with its deadline at and not before, and
// tells how late it was.
func requireTimeoutAt(t *testing.T, err error, at time.Time) (late time.Duration) {
	t.Helper()
	now := time.Now()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.False(t, now.Before(at), "%v too early", at.Sub(now))
	return now.Sub(at)
}

// requireFires checks that a call with a deadline so far away ends with it.
func requireFires(t *testing.T, what string, d time.Duration, set func(time.Time) error, call func() error) {
	t.Helper()
	within(t, lasting, what, func() {
		fastest(t, 20, what, slack, func() time.Duration {
			at := time.Now().Add(d)
			require.NoError(t, set(at))
			return requireTimeoutAt(t, call(), at)
		})
	})
}

func TestDeadlinesFire(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		client, server := fl.pair(t)
		calls := []struct {
			name string
			set  func(time.Time) error
			call func() error
		}{
			{"Read", client.SetReadDeadline, func() error { _, err := client.Read(make([]byte, 1)); return err }},
			{"Peek", client.SetReadDeadline, func() error { _, err := client.Peek(1); return err }},
			{"Discard", client.SetReadDeadline, func() error { _, err := client.Discard(1); return err }},
			{"WriteTo", client.SetReadDeadline, func() error { _, err := client.WriteTo(endless{}); return err }},
			{"Write", server.SetWriteDeadline, func() error { _, err := server.Write(tooBig); return err }},
			{"ReadFrom", client.SetWriteDeadline, func() error { _, err := client.ReadFrom(endless{}); return err }},
			{"Commit", client.SetWriteDeadline, func() error {
				for {
					b, err := client.Reserve(MaxReserve)
					if err == nil {
						err = client.Commit(len(b))
					}
					if err != nil {
						return err
					}
				}
			}},
		}
		for _, c := range calls {
			for _, d := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond} {
				requireFires(t, c.name, d, c.set, c.call)
			}
			require.NoError(t, c.set(time.Time{}))
		}
	})
}

func TestAcceptDeadlineFires(t *testing.T) {
	l, err := Listen("rdma", testAddr())
	require.NoError(t, err)
	defer l.Close()
	for _, d := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond} {
		requireFires(t, "Accept", d, l.(*Listener).SetDeadline, func() error { _, err := l.Accept(); return err })
	}
}

// TestDeadlineMovedOften moves the deadlines of calls that wait, thousands of
// times, and lets the last one count.
func TestDeadlineMovedOften(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		client, server := fl.pair(t)
		var wg sync.WaitGroup
		results := make(chan error, 2)
		wg.Go(func() { _, err := client.Read(make([]byte, 1)); results <- err })
		wg.Go(func() { _, err := client.Write(tooBig); results <- err })
		for i := range 5000 {
			at := time.Now().Add(time.Hour)
			if i%3 == 0 {
				at = time.Time{}
			}
			require.NoError(t, client.SetDeadline(at))
		}
		select {
		case err := <-results:
			t.Fatalf("returned %v with time left", err)
		default:
		}
		at := time.Now().Add(5 * time.Millisecond)
		require.NoError(t, client.SetDeadline(at))
		for range 2 {
			requireTimeoutAt(t, <-results, at)
		}
		wg.Wait()
		_ = server
	})
}

// TestDeadlineOfOneDirection has a deadline of one direction leave the other's wait alone.
func TestDeadlineOfOneDirection(t *testing.T) {
	client, server := pair(t)
	read := make(chan error, 1)
	go func() { _, err := client.Read(make([]byte, 1)); read <- err }()
	at := time.Now().Add(5 * time.Millisecond)
	require.NoError(t, client.SetWriteDeadline(at))
	_, err := client.Write(tooBig)
	requireTimeoutAt(t, err, at)
	select {
	case err := <-read:
		t.Fatal(err)
	default:
	}
	_, err = server.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, <-read)
}

// TestDeadlineWhileTrafficFlows sets and clears deadlines around every read and
// write, as net/http does, while data comes and goes.
func TestDeadlineWhileTrafficFlows(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		client, server := fl.pair(t)
		const rounds = 2000
		var wg sync.WaitGroup
		wg.Go(func() {
			b := make([]byte, 64)
			for range rounds {
				if !assert.NoError(t, server.SetReadDeadline(time.Now().Add(patience))) {
					return
				}
				n, err := server.Read(b)
				if !assert.NoError(t, err) || !assert.NoError(t, server.SetReadDeadline(time.Time{})) {
					return
				}
				if _, err := server.Write(b[:n]); !assert.NoError(t, err) {
					return
				}
			}
		})
		b := make([]byte, 8)
		for range rounds {
			require.NoError(t, client.SetDeadline(time.Now().Add(patience)))
			_, err := client.Write(b)
			require.NoError(t, err)
			readFull(t, client, len(b))
			require.NoError(t, client.SetDeadline(time.Time{}))
		}
		wg.Wait()
	})
}
