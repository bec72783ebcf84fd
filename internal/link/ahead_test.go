package link

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// An aheadQP has the WRITEs of writeAhead wait, each until it is let go, and fail if it is told to.
type aheadQP struct {
	verbs.QP
	began chan struct{}
	goOn  chan error
	over  chan struct{}
}

func (q *aheadQP) PostSend(wrs []verbs.SendWR) (int, error) {
	if wrs[0].Opcode == verbs.WRRDMAWrite && len(wrs[0].Inline) > copyUnderLock {
		q.began <- struct{}{}
		select {
		case err := <-q.goOn:
			if err != nil {
				return 0, err
			}
		case <-q.over:
		}
	}
	return q.QP.PostSend(wrs)
}

// holdAhead has an aheadQP take the place of the QP of a lane, until the test is over.
func holdAhead(t *testing.T, e *laneEnd) *aheadQP {
	e.mu.Lock()
	defer e.mu.Unlock()
	q := &aheadQP{e.sq.qp, make(chan struct{}, 2*sendDepth), make(chan error), make(chan struct{})}
	t.Cleanup(func() { close(q.over) })
	e.sq.qp = q
	return q
}

// newAheadBed is a bed whose streams write ahead from the beginning.
func newAheadBed(t *testing.T, device string) *bed {
	return newBed(t, Config{CM: cm.Options{Device: device}, FirstRing: 64 << 10})
}

// quiet reports whether the peer of s writes to its rings no more, as the peer has said.
func quiet(s *Stream) bool {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	return s.st.Quiet()
}

// TestWriteAhead: while the bytes of a large Write are on their way, other streams of the lane go on, and
// the peer keeps the memory that they go to, whichever end the stream is closed at.
func TestWriteAhead(t *testing.T) {
	for _, device := range []string{"soft0", "soft0-iwarp"} {
		t.Run(device, func(t *testing.T) { writeAhead(t, device) })
	}
}

func writeAhead(t *testing.T, device string) {
	for _, by := range []string{"nobody", "the peer", "the program"} {
		t.Run("ClosedBy/"+by, func(t *testing.T) {
			b := newAheadBed(t, device)
			writer, reader := b.pair()
			other, itsPeer := b.pair()
			q := holdAhead(t, writer.e)
			sent := make([]byte, 16<<10)
			rand.NewChaCha8([32]byte{}).Read(sent)
			wrote := make(chan error)
			go func() {
				_, err := writer.Write(sent)
				wrote <- err
			}()
			<-q.began
			say(t, other, itsPeer)
			say(t, itsPeer, other)
			switch by {
			case "the peer":
				require.NoError(t, reader.Close())
			case "the program":
				require.NoError(t, writer.Close())
			}
			for range 2 { // a lane keeps messages in order: each end has heard of it then
				say(t, itsPeer, other)
				say(t, other, itsPeer)
			}
			assert.False(t, quiet(reader), "the ring is free and still written to")
			q.goOn <- nil
			err := <-wrote
			switch by {
			case "nobody":
				require.NoError(t, err)
				got := make([]byte, len(sent))
				_, err = io.ReadFull(reader, got)
				require.NoError(t, err)
				require.True(t, bytes.Equal(sent, got))
				return
			case "the program":
				require.ErrorIs(t, err, net.ErrClosed)
				_, err = reader.Read(make([]byte, 1))
				require.ErrorIs(t, err, io.EOF)
			}
			require.Eventually(t, func() bool { return quiet(reader) }, patience, time.Millisecond)
			say(t, other, itsPeer)
		})
	}
}

// An aheadCrowd is as many Writes of one lane as its send queue holds requests: they have written ahead
// what it has room for, before one request was signalled, and the others wait for room.
type aheadCrowd struct {
	t       *testing.T
	e       *laneEnd
	q       *aheadQP
	writers []*Stream
	blocked []*stream
	writes  sync.WaitGroup
	failed  atomic.Int64
}

func newAheadCrowd(t *testing.T) *aheadCrowd {
	b := newAheadBed(t, "soft0")
	c := &aheadCrowd{t: t, writers: make([]*Stream, sendDepth)}
	for i := range c.writers {
		c.writers[i], _ = b.pair()
	}
	c.e = c.writers[0].e
	c.q = holdAhead(t, c.e)
	for _, w := range c.writers {
		c.writes.Go(func() {
			if _, err := w.Write(make([]byte, 2*copyUnderLock)); err != nil {
				c.failed.Add(1)
			}
		})
	}
	require.Eventually(t, func() bool {
		c.e.mu.Lock()
		defer c.e.mu.Unlock()
		c.blocked = slices.Clone(c.e.blocked)
		return len(c.q.began) == c.e.sq.ahead && len(c.q.began)+len(c.blocked) == len(c.writers)
	}, patience, time.Millisecond)
	require.LessOrEqual(t, len(c.q.began), (sendDepth-controlRoom)/aheadRoom)
	return c
}

// finish lets all Writes go on, and waits for them.
func (c *aheadCrowd) finish() {
	done := make(chan struct{})
	go func() { defer close(done); c.writes.Wait() }()
	within(c.t, "the Writes", func() {
		for {
			select {
			case c.q.goOn <- nil:
			case <-c.q.over:
				return
			case <-done:
				return
			}
		}
	})
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	require.Zero(c.t, c.e.sq.ahead)
}

// TestWriteAheadMany: they all go on, and none is carried out twice.
func TestWriteAheadMany(t *testing.T) {
	c := newAheadCrowd(t)
	c.finish()
	require.Zero(t, c.failed.Load())
	require.Len(t, c.q.began, len(c.writers))
}

// TestWriteAheadInVain: those that wait go on also when what the others wrote was in vain, of which no
// completion tells.
func TestWriteAheadInVain(t *testing.T) {
	c := newAheadCrowd(t)
	held := len(c.q.began)
	c.e.mu.Lock()
	for _, w := range c.writers {
		if !slices.Contains(c.blocked, w.stream) {
			w.end.cause = errLost // and nothing is posted for it
		}
	}
	c.e.mu.Unlock()
	c.finish()
	require.EqualValues(t, held, c.failed.Load())
}

// TestWriteAheadAlone: a stream that has a lane for itself sends a large Write as one message, and so does
// one whose ring is small.
func TestWriteAheadAlone(t *testing.T) {
	b := newAheadBed(t, "soft0")
	writer, reader := b.pair()
	e := writer.e
	write := func(size int) (requests uint64) {
		e.mu.Lock()
		before := e.sq.posted
		e.mu.Unlock()
		_, err := writer.Write(make([]byte, size))
		require.NoError(t, err)
		e.mu.Lock()
		requests = e.sq.posted - before
		e.mu.Unlock()
		_, err = io.ReadFull(reader, make([]byte, size))
		require.NoError(t, err)
		return requests
	}
	require.EqualValues(t, 1, write(2*copyUnderLock))
	b.pair()
	require.EqualValues(t, 2, write(2*copyUnderLock))
	require.EqualValues(t, 1, write(copyUnderLock))
}

// TestWriteAheadFails: a request that the device does not take ends the lane, as any other does.
func TestWriteAheadFails(t *testing.T) {
	b := newAheadBed(t, "soft0")
	writer, reader := b.pair()
	b.pair()
	q := holdAhead(t, writer.e)
	refused := errors.New("refused")
	wrote := make(chan error)
	go func() {
		_, err := writer.Write(make([]byte, 16<<10))
		wrote <- err
	}()
	<-q.began
	q.goOn <- refused
	require.ErrorIs(t, <-wrote, refused)
	within(t, "Read", func() {
		_, err := reader.Read(make([]byte, 1))
		require.Error(t, err)
	})
}

// TestWriteAheadEnds: what a lane has is destroyed when no Write posts to it any more.
func TestWriteAheadEnds(t *testing.T) {
	b := newAheadBed(t, "soft0")
	writer, _ := b.pair()
	b.pair()
	e := writer.e
	q := holdAhead(t, e)
	wrote := make(chan error)
	go func() {
		_, err := writer.Write(make([]byte, 16<<10))
		wrote <- err
	}()
	<-q.began
	e.end(errGone)
	require.Eventually(t, e.failed.Load, patience, time.Millisecond)
	destroyed := func() bool {
		select {
		case <-e.done:
			return true
		default:
			return false
		}
	}
	require.Never(t, destroyed, 50*time.Millisecond, time.Millisecond, "and a Write posts to it")
	q.goOn <- nil
	require.Error(t, <-wrote)
	within(t, "the end of the lane", func() { <-e.done })
}

// TestAheadsAreBounded: WRITEs that no message follows leave the send queue room for one, which is
// signalled: else nothing would complete any more.
func TestAheadsAreBounded(t *testing.T) {
	q := sendQueue{qp: takesAll{}, cap: sendDepth}
	for range 3 {
		for q.mayGoAhead() {
			wrs, err := q.beginAhead(make([]byte, 1), 0, 0)
			require.NoError(t, err)
			require.NoError(t, q.endAhead(wrs, nil))
			require.LessOrEqual(t, q.posted, q.completed+sendDepth)
		}
		require.Greater(t, q.room(), controlRoom)
		require.NoError(t, q.post(make([]verbs.SendWR, 1), false))
		require.Equal(t, q.posted, q.signaled)
		q.completed = q.posted
	}
}

// takesAll is a QP that takes all requests and carries none out.
type takesAll struct{ verbs.QP }

func (takesAll) PostSend(wrs []verbs.SendWR) (int, error) { return len(wrs), nil }

// TestWriteAheadYields: who writes much lets goroutines run that wait for its processor, though it never
// sleeps.
func TestWriteAheadYields(t *testing.T) {
	b := newAheadBed(t, "soft0")
	writer, reader := b.pair()
	b.pair()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	p := make([]byte, 32<<10)
	var ran atomic.Bool
	go ran.Store(true)
	for range 2 * yieldBytes / len(p) { // some may go under the lock
		_, err := writer.Write(p)
		require.NoError(t, err)
		_, err = io.ReadFull(reader, p) // which is there
		require.NoError(t, err)
	}
	require.True(t, ran.Load())
}
