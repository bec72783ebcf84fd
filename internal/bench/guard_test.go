package bench

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// The tests of this file hold what makes the benchmarks fast where nothing can be
// timed, by counting. docs/BENCHMARKS.md lists the bounds. guard_memory_test.go counts
// what a connection holds and what HTTP allocates; what Read, Write and the like
// allocate is counted beside them, in package rdmanet.

func guarded(t *testing.T) {
	t.Helper()
	if !haveRDMA {
		t.Skip("the software device needs Linux on amd64 or arm64")
	}
}

// atMostEach fails if there were more than bound for each of n.
func atMostEach(t *testing.T, bound float64, count uint64, n int, what string) {
	t.Helper()
	assert.LessOrEqual(t, float64(count)/float64(n), bound, "%d %s for %d", count, what, n)
}

// TestGuardAlone has one goroutine use both ends in turn, so that nobody ever waits and
// everything can be counted exactly.
func TestGuardAlone(t *testing.T) {
	guarded(t)
	from, to := connPair(t)
	const n = 10_000
	message := make([]byte, 64)
	turn := func() {
		_, err := from.Write(message)
		require.NoError(t, err)
		_, err = io.ReadFull(to, message)
		require.NoError(t, err)
	}
	turn()
	var writer, reader rdmanet.ConnStats
	for range 20 { // until it goes by one ring: to move to a larger one is a message as well
		writer, reader = from.Stats(), to.Stats()
		ring := writer.WriteBuffer
		for range n {
			turn()
		}
		writer, reader = since(writer, from.Stats()), since(reader, to.Stats())
		if writer.WriteBuffer == ring && reader.RingsGrown == 0 {
			break
		}
	}
	assert.Zero(t, reader.RingsGrown, "a reader that takes each message at once needs no more than a small ring")
	assert.EqualValues(t, n, writer.MessagesSent, "a Write is one message")
	assert.EqualValues(t, n, writer.DoorbellsSent-writer.CreditsSent, "a message is one doorbell")
	// Nobody sleeps but the goroutine of a lane, where the process got no processor for a while.
	atMostEach(t, 0.01, writer.WakeupsSent+reader.WakeupsSent, n, "wake-ups where nobody waits")
	assert.Zero(t, writer.Parks+reader.Parks)
	// One when half of the ring or a quarter of the receives, 64, is used up. Over a link the
	// message that does so brings it about when it arrives, and is not read by then.
	atMostEach(t, 1.1*max(64/float64(writer.WriteBuffer/2-64), 1./64), reader.CreditsSent, n, "credits")
	atMostEach(t, 1./1000, writer.CreditsSent, n, "credits for credits")
}

// streamSizes are those of the messages of streams whose costs are counted.
var streamSizes = []int{64, 1 << 10, 64 << 10, 1 << 20}

// TestGuardStream has a writer and a reader that are both awake, in one of some rounds at
// least: how long they sleep on a busy machine is for the scheduler to say.
// TestTimingGuardStream has them awake in every round.
func TestGuardStream(t *testing.T) {
	guarded(t)
	for _, size := range streamSizes {
		t.Run(SizeName(size), func(t *testing.T) {
			from, to := connPair(t)
			countStream(t, from, to, size) // the ring grows
			var exceeded []string
			for range 20 {
				if exceeded = countStream(t, from, to, size); len(exceeded) == 0 {
					return
				}
			}
			assert.Empty(t, exceeded)
		})
	}
}

// largestMessage is the most bytes of one message: streams of a lane take turns.
const largestMessage = 64 << 10

// countStream sends a stream, and tells which bounds it has exceeded.
func countStream(t *testing.T, from, to *rdmanet.Conn, size int) (exceeded []string) {
	t.Helper()
	n := min(20_000, 128<<20/size)
	writer, reader := from.Stats(), to.Stats()
	taken := make(chan error, 1)
	go func() { taken <- takeByRead(to, n, size) }()
	require.NoError(t, sendByWrite(from, n, size))
	require.NoError(t, <-taken)
	writer, reader = since(writer, from.Stats()), since(reader, to.Stats())
	bound := func(most float64, count uint64, n int, what string) {
		if each := float64(count) / float64(n); each > most {
			exceeded = append(exceeded, fmt.Sprintf("%d %s for %d, which is %.2f and at most to be %.2f", count, what, n, each, most))
		}
	}
	pieces := n * max(1, size/min(writer.WriteBuffer/4, largestMessage))
	bound(1.5, writer.MessagesSent, pieces, "messages for pieces of a quarter of the ring, or of the largest message")
	bound(1.1, writer.DoorbellsSent, int(writer.MessagesSent), "doorbells for messages")
	// One for a tenth of the ring is allowed (creditDue of lane.Receiver), which with messages of 64 KiB
	// are more than one for twenty.
	credits := max(1./20, 5*float64(size)/float64(writer.WriteBuffer))
	if size >= writer.WriteBuffer/4 { // each is a large part of the ring
		credits = 1.1
	}
	bound(credits, reader.CreditsSent, int(writer.MessagesSent), "credits for messages")
	if size <= 1<<10 { // a ring has room for few large ones, and who waits for it may sleep
		bound(0.1, writer.WakeupsSent+reader.WakeupsSent, int(writer.MessagesSent), "wake-ups for messages")
	}
	return exceeded
}

// TestGuardAsleep sends each message when both ends have gone to sleep. On a busy machine a
// sleeper may be woken once more, and sleep again, while it waits: that is no rule, so one of
// some tries does without.
func TestGuardAsleep(t *testing.T) {
	guarded(t)
	const n = 50
	var parks uint64
	for range 10 {
		if parks = sleepsForAnswers(t, n); float64(parks) <= 1.1*n {
			return
		}
	}
	atMostEach(t, 1.1, parks, n, "sleeps for answers")
}

// sleepsForAnswers exchanges n messages between ends that sleep, and returns how often the one
// that slept more often did.
func sleepsForAnswers(t *testing.T, n int) (parks uint64) {
	t.Helper()
	client, server := connPair(t)
	// Each end says how often it has slept right before it reads. The other may look only later,
	// when it sleeps already, and must not take that sleep for one that is over.
	clientReads, serverReads := make(chan uint64, 1), make(chan uint64, 1)
	read := func(c *rdmanet.Conn, b []byte, reads chan<- uint64) error {
		reads <- c.Stats().Parks
		_, err := io.ReadFull(c, b)
		return err
	}
	writeToSleeper := func(c *rdmanet.Conn, b []byte, peer *rdmanet.Conn, reads <-chan uint64) error {
		parks := <-reads
		for began := time.Now(); peer.Stats().Parks <= parks; time.Sleep(100 * time.Microsecond) {
			if time.Since(began) > time.Minute {
				return fmt.Errorf("an end without anything to read does not sleep: %d sleeps", peer.Stats().Parks)
			}
		}
		_, err := c.Write(b)
		return err
	}
	answered := make(chan error, 1)
	go func() {
		answered <- func() error {
			defer server.CloseWrite() // ends the other's Read where this end failed
			b := make([]byte, 64)
			for range n {
				if err := read(server, b, serverReads); err != nil {
					return err
				}
				if err := writeToSleeper(server, b, client, clientReads); err != nil {
					return err
				}
			}
			return nil
		}()
	}()
	exchange := func() error {
		b := make([]byte, 64)
		for range n {
			if err := writeToSleeper(client, b, server, serverReads); err != nil {
				return err
			}
			if err := read(client, b, clientReads); err != nil {
				return err
			}
		}
		return nil
	}
	err := exchange()
	if err != nil {
		client.Close() // ends the other's Read
	}
	require.NoError(t, errors.Join(err, <-answered))
	for _, c := range []*rdmanet.Conn{client, server} {
		s := c.Stats()
		require.EqualValues(t, n, s.MessagesSent)
		atMostEach(t, 1, s.WakeupsSent, int(s.DoorbellsSent), "wake-ups for messages to a sleeper")
		parks = max(parks, s.Parks)
	}
	return parks
}

// TestGuardCopies counts the bytes that each way to send and to take copies.
func TestGuardCopies(t *testing.T) {
	guarded(t)
	const n, size = 64, 64 << 10
	for _, way := range copyWays {
		t.Run(way.name, func(t *testing.T) {
			from, to := connPair(t)
			taken := make(chan error, 1)
			go func() { taken <- way.take(to, n, size) }()
			require.NoError(t, way.send(from, n, size))
			require.NoError(t, <-taken)
			writer, reader := from.Stats(), to.Stats()
			assert.Zero(t, writer.BytesCopied, "the device takes them where they are")
			assert.EqualValues(t, n*size, writer.BytesPlaced)
			if way.name == "Write" {
				assert.EqualValues(t, n*size, reader.BytesCopied, "by Read")
				assert.Zero(t, reader.BytesPlaced)
			} else {
				assert.Zero(t, reader.BytesCopied)
				assert.EqualValues(t, n*size, reader.BytesPlaced)
			}
		})
	}
}
