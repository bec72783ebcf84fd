package rdmanet

import (
	"bytes"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring"
)

// slowCQ shows no completions while it is shut, as that of a device with a lot to do,
// until somebody arms it to sleep.
type slowCQ struct {
	verbs.CQ
	shut atomic.Bool
}

func (q *slowCQ) ReqNotify(solicited bool) error {
	q.shut.Store(false)
	return q.CQ.ReqNotify(solicited)
}

func (q *slowCQ) Poll(wcs []verbs.WC) (int, error) {
	if q.shut.Load() {
		return 0, nil
	}
	return q.CQ.Poll(wcs)
}

// slowPair is a connection whose client has a device that takes the bytes after the
// post, and sees no completions of what it sends before cq is opened.
func slowPair(t *testing.T, d Dialer, l ListenConfig) (client, server *Conn, cq *slowCQ) {
	t.Helper()
	d.asynchronous = true
	client, server = flavour{dialer: d, listen: l}.pair(t)
	cq = new(slowCQ)
	client.send.mu.Lock()
	cq.CQ, client.send.sq.cq, client.ep.sendCQ = client.send.sq.cq, cq, cq
	client.send.mu.Unlock()
	cq.shut.Store(true)
	return client, server, cq
}

// enough is how many requests on their way have small Writes be gathered.
func enough(c *Conn) int { return int(c.send.sq.every) + gatherBehind }

// withoutTick has gathered bytes wait for all but the time.
func (c *Conn) withoutTick() {
	c.send.mu.Lock()
	c.send.gathered = &gathered{waits: true, timer: time.NewTimer(time.Hour)}
	c.send.mu.Unlock()
}

// writePieces writes n pieces of a stream from byte at on, and returns where they end.
func writePieces(t *testing.T, c *Conn, at, n, size int) int {
	t.Helper()
	for range n {
		_, err := c.Write(modelStream[at : at+size])
		require.NoError(t, err)
		at += size
	}
	return at
}

// TestGather writes more than the device sends: when enough is on its way, small Writes
// go together, and all when the device is done.
func TestGather(t *testing.T) {
	onSoftware(t) // which is done with everything as soon as it shows completions
	const size = 64
	client, server, cq := slowPair(t, Dialer{}, ListenConfig{})
	client.withoutTick()
	busy := enough(client)
	n := writePieces(t, client, 0, busy, size)
	require.EqualValues(t, busy, client.Stats().MessagesSent, "not enough is on its way")
	n = writePieces(t, client, n, gatherLooks, size)
	require.EqualValues(t, busy, client.Stats().MessagesSent, "they are gathered")
	require.EqualValues(t, n, client.Stats().BytesWritten)
	require.Equal(t, modelStream[:busy*size], readFull(t, server, busy*size))

	cq.shut.Store(false)
	n = writePieces(t, client, n, 1, size)
	require.EqualValues(t, busy+1, client.Stats().MessagesSent, "one message for all")
	require.Equal(t, modelStream[busy*size:n], readFull(t, server, n-busy*size))
}

// TestGatherMost gathers no more than a message may have.
func TestGatherMost(t *testing.T) {
	onSoftware(t)
	for name, most := range map[string]int{"a small ring's": 1000, "what is gathered": maxGathered} {
		t.Run(name, func(t *testing.T) {
			const size = 250
			client, server, _ := slowPair(t, Dialer{}, ListenConfig{ReadBuffer: 256 << 10})
			client.withoutTick()
			client.send.mu.Lock()
			if most < maxGathered {
				client.send.chunk = uint32(most)
			}
			client.send.mu.Unlock()
			before := enough(client)
			n := writePieces(t, client, 0, before, size)
			n = writePieces(t, client, n, 3*(most/size), size)
			messages := int(client.Stats().MessagesSent) - before
			require.Equal(t, 2, messages, "and a third that is gathered")
			require.NoError(t, client.CloseWrite())
			got, err := io.ReadAll(server)
			require.NoError(t, err)
			require.True(t, bytes.Equal(modelStream[:n], got))
		})
	}
}

// TestGatherTick writes no more after what was gathered: it is sent all the same.
func TestGatherTick(t *testing.T) {
	client, server, _ := slowPair(t, Dialer{}, ListenConfig{})
	for at, round := 0, 0; round < 3; round++ {
		end := writePieces(t, client, at, enough(client)+8, 64)
		within(t, patience, "Read", func() {
			require.Equal(t, modelStream[at:end], readFull(t, server, end-at))
		})
		at = end
	}
}

// gatherSome leaves bytes that are gathered and no timer sends, and returns the length
// of the stream so far.
func gatherSome(t *testing.T, client *Conn) int {
	t.Helper()
	client.withoutTick()
	n := writePieces(t, client, 0, enough(client)+3, 64)
	require.Positive(t, client.send.gathered.n)
	return n
}

// TestGatherEnds has everything that is to come after what was gathered, or waits for it.
func TestGatherEnds(t *testing.T) {
	large := bytes.Repeat([]byte{'x'}, 2*gatherBelow)
	for name, then := range map[string]func(c *Conn) (more []byte){
		"Read": func(c *Conn) []byte {
			require.NoError(t, c.SetBusyPoll(time.Hour)) // before it sleeps it looks anyway
			go func() { _, _ = c.Read(make([]byte, 1)) }()
			return nil
		},
		"large Write": func(c *Conn) []byte {
			_, err := c.Write(large)
			require.NoError(t, err)
			return large
		},
		"ReadFrom": func(c *Conn) []byte {
			_, err := c.ReadFrom(bytes.NewReader(large))
			require.NoError(t, err)
			return large
		},
		"Commit": func(c *Conn) []byte {
			b, err := c.Reserve(3)
			require.NoError(t, err)
			copy(b, "xyz")
			require.NoError(t, c.Commit(3))
			return []byte("xyz")
		},
		"CloseWrite": func(c *Conn) []byte {
			require.NoError(t, c.CloseWrite())
			return nil
		},
		"Close": func(c *Conn) []byte {
			require.NoError(t, c.Close())
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, server, cq := slowPair(t, Dialer{}, ListenConfig{})
			n := gatherSome(t, client)
			want := append(modelStream[:n:n], then(client)...)
			within(t, patience, "Read", func() { require.Equal(t, want, readFull(t, server, len(want))) })
			cq.shut.Store(false)
			switch name {
			case "CloseWrite", "Close":
				rest, err := io.ReadAll(server)
				require.NoError(t, err)
				require.Empty(t, rest)
			}
		})
	}
}

// TestGatherFullRing fills the ring of a peer that does not read: what Writes have taken
// arrives, and they take no more than there is room for.
func TestGatherFullRing(t *testing.T) {
	small := ListenConfig{ReadBuffer: MinReadBuffer, MaxReadBuffer: MinReadBuffer}
	client, server, cq := slowPair(t, Dialer{}, small)
	n := 0
	again(t, "Write", func() bool { return n > MinReadBuffer*3/4 }, func() {
		require.NoError(t, client.SetWriteDeadline(time.Now().Add(slowly(50*time.Millisecond))))
		for err := error(nil); err == nil; {
			var m int
			m, err = client.Write(modelStream[n : n+48])
			n += m
			if err != nil {
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			}
		}
	})
	require.LessOrEqual(t, n, MinReadBuffer)
	cq.shut.Store(false)
	require.NoError(t, client.CloseWrite())
	got, err := io.ReadAll(server)
	require.NoError(t, err)
	require.True(t, bytes.Equal(modelStream[:n], got))
}

// TestGatherPeerCloses leaves bytes gathered for a peer that closes: Writes say so, and
// Close is quick.
func TestGatherPeerCloses(t *testing.T) {
	client, server, _ := slowPair(t, Dialer{}, ListenConfig{})
	n := gatherSome(t, client)
	readFull(t, server, n-client.send.gathered.n) // what it has not read would make Close a reset
	require.NoError(t, server.Close())
	require.Eventually(t, func() bool {
		_, err := client.Write([]byte{1})
		return err != nil
	}, patience, time.Millisecond)
	_, err := client.Write([]byte{1})
	require.ErrorIs(t, err, syscall.EPIPE)
	require.NoError(t, client.Close())
	promptly(t, client)
}

// TestGatherNoTail writes more than a message takes: the end of it is no small Write.
func TestGatherNoTail(t *testing.T) {
	client, server, _ := slowPair(t, Dialer{}, ListenConfig{ReadBuffer: 256 << 10})
	n := gatherSome(t, client)
	readFull(t, server, n-client.send.gathered.n)
	waiting := client.send.gathered.n
	large := make([]byte, sendBlockSize+100)
	_, err := client.Write(large)
	require.NoError(t, err)
	within(t, patience, "Read", func() { readFull(t, server, waiting+len(large)) })
}

// TestGatherStuck has no slot left for what was gathered, a peer that then gives some, and
// nobody who calls anything: the bytes arrive.
func TestGatherStuck(t *testing.T) {
	client, server, _ := slowPair(t, Dialer{}, ListenConfig{RecvDepth: 64})
	n := gatherSome(t, client)
	client.send.mu.Lock()
	for client.send.ring.Slots() > 0 {
		client.send.ring.SentControl()
	}
	require.False(t, client.send.sendGathered())
	rest := client.send.gathered.n
	client.send.mu.Unlock()
	readFull(t, server, n-rest)
	server.recv.mu.Lock()
	server.recv.returnCredit() // which is not due on iWARP, where enough requests are fewer messages
	server.recv.mu.Unlock()
	require.Eventually(t, func() bool {
		client.send.tick()
		client.send.mu.Lock()
		defer client.send.mu.Unlock()
		return client.send.gathered.n == 0
	}, patience, time.Millisecond)
	require.Equal(t, modelStream[n-rest:n], readFull(t, server, rest))
}

// refusesOne is a QP that does not take the next request.
type refusesOne struct {
	verbs.QP
	done bool
}

func (q *refusesOne) PostSend(wrs []verbs.SendWR) (int, error) {
	if q.done {
		return q.QP.PostSend(wrs)
	}
	q.done = true
	return 0, verbs.ErrNoMemory
}

// TestGatherRefused has a device refuse what was gathered when the stream is ended: the
// peer must not take it for complete.
func TestGatherRefused(t *testing.T) {
	client, server, _ := slowPair(t, Dialer{}, ListenConfig{})
	gatherSome(t, client)
	client.send.mu.Lock()
	client.send.sq.qp = &refusesOne{QP: client.send.sq.qp}
	client.term.shutWrite()
	client.send.end(ring.KindFIN)
	client.send.flushPending() // as a reader does that goes to sleep
	pending := client.send.pending
	client.send.mu.Unlock()
	require.Equal(t, ring.KindFIN, pending)
	_, err := io.ReadAll(server)
	require.ErrorIs(t, err, syscall.ECONNRESET)
}
