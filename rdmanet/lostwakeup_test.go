package rdmanet

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A sleeper is a Conn that never polls before it sleeps: every wait of it is an arm,
// a last look, and a park.
type sleeper struct{ *Conn }

func (s sleeper) Read(p []byte) (int, error) {
	_ = s.SetBusyPoll(-1) // fails only where Read does
	return s.Conn.Read(p)
}

func (s sleeper) Write(p []byte) (int, error) {
	_ = s.SetBusyPoll(-1)
	return s.Conn.Write(p)
}

// dawdle lets a random, short time pass, without the scheduler half the time.
func dawdle(rng *rand.Rand) {
	n := rng.IntN(1 << rng.IntN(10))
	for began := time.Now(); n > 0 && time.Since(began) < 20*time.Microsecond; n-- {
	}
}

// scale makes a test shorter under -short.
func scale(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// longVar has tests that look for what is rare do so for longer, as make test-long does.
const longVar = "RDMANET_TEST_LONG"

// slice is a part of a long test.
func slice(n int) int {
	if os.Getenv(longVar) != "" {
		return n
	}
	return min(n/5, scale(n))
}

// requireParked sees that both ends have slept.
func requireParked(t *testing.T, least int, conns ...*Conn) {
	t.Helper()
	for _, c := range conns {
		s := c.Stats()
		require.Greater(t, s.Parks, uint64(least), "hardly a wait came to a park")
	}
}

// TestLostWakeupPingPong exchanges single bytes between ends that sleep between any
// two of them. A wake-up that is lost leaves both asleep for ever.
func TestLostWakeupPingPong(t *testing.T) {
	rounds := slice(20_000)
	for _, balls := range []int{1, 2, 3} {
		t.Run(fmt.Sprintf("%d in flight", balls), func(t *testing.T) {
			eachFlavour(t, func(t *testing.T, fl flavour) {
				client, server := fl.pair(t)
				rounds := rounds
				if fl.faulty() {
					rounds /= 10 // each takes its time
				}
				within(t, lasting, "a game of ping-pong", func() {
					var ends sync.WaitGroup
					for i, c := range []*Conn{client, server} {
						serves := (balls + 1 - i) / 2 // from both ends, where there are several
						ends.Go(func() { assert.NoError(t, play(sleeper{c}, serves, rounds, uint64(i))) })
					}
					ends.Wait()
				})
				requireParked(t, rounds/100, client, server)
			})
		})
	}
}

// play returns every byte, rounds times.
func play(c io.ReadWriter, serves, rounds int, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 0))
	b := make([]byte, 1)
	for range serves {
		if _, err := c.Write(b); err != nil {
			return err
		}
	}
	for i := range rounds {
		if _, err := io.ReadFull(c, b); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
		dawdle(rng)
		if i >= rounds-serves {
			continue // the byte has been returned rounds times
		}
		if _, err := c.Write(b); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
	}
	return nil
}

// TestLostWakeupFull streams both ways at once through rings that are mostly full
// or empty, so that Writes sleep as Reads do.
func TestLostWakeupFull(t *testing.T) {
	size := slice(8 << 20)
	eachFlavour(t, func(t *testing.T, fl flavour) {
		client, server := fl.pair(t)
		within(t, lasting, "a stream", func() {
			var all sync.WaitGroup
			for i, c := range []*Conn{client, server} {
				seed := uint64(2 * i)
				all.Go(func() { assert.NoError(t, pour(sleeper{c}, size, seed)) })
				all.Go(func() { assert.NoError(t, sip(sleeper{c}, size, seed+1)) })
			}
			all.Wait()
		})
		requireParked(t, 0, client, server)
		require.Positive(t, client.Stats().CreditStalls+server.Stats().CreditStalls, "no Write had to wait")
	})
}

// pour writes size bytes in random pieces.
func pour(c io.Writer, size int, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 1))
	buf := make([]byte, 64<<10)
	for done := 0; done < size; {
		n := min(1+rng.IntN(1<<rng.IntN(17)), size-done)
		for i := range n {
			buf[i] = pattern(done + i)
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return fmt.Errorf("at %d: %w", done, err)
		}
		done += n
		dawdle(rng)
	}
	return nil
}

// sip reads them.
func sip(c io.Reader, size int, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 2))
	buf := make([]byte, 64<<10)
	for done := 0; done < size; {
		n, err := c.Read(buf[:1+rng.IntN(1<<rng.IntN(17))])
		if err != nil {
			return fmt.Errorf("at %d: %w", done, err)
		}
		for i := range n {
			if buf[i] != pattern(done+i) {
				return fmt.Errorf("wrong byte at %d", done+i)
			}
		}
		done += n
		dawdle(rng)
	}
	return nil
}

// pattern is the byte at a place in a stream; it repeats with no power of two.
func pattern(i int) byte { return byte(i % 251) }
