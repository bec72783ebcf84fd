package link

import (
	"io"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
)

// cutBehind is where in a message of cutLength bytes the ring ends.
const cutBehind, cutLength = 2, 4

// atRingEnd returns a stream and its peer. The next message of the stream is cut by the end of the ring, and nothing
// else keeps it from going on behind that.
func atRingEnd(t *testing.T) (client, server *Stream) {
	client, server = newBed(t, Config{CM: cm.Options{Device: "soft0"}, FirstRing: 4 << 10, Idle: patience}).pair()
	for left := int(client.st.Sender().Ring().Size) - cutBehind; left > 0; {
		n := min(left, 64)
		_, err := client.Write(make([]byte, n))
		require.NoError(t, err)
		_, err = io.ReadFull(server, make([]byte, n))
		require.NoError(t, err)
		_, err = server.Write(make([]byte, 1))
		require.NoError(t, err)
		_, err = io.ReadFull(client, make([]byte, 1)) // and takes in what it has of credits
		require.NoError(t, err)
		left -= n
	}
	return client, server
}

// TestCutMessage: what the end of the ring cuts off a message wakes a peer that sleeps, and is sent at once. Where the
// send queue may have no room for it the message wakes the peer itself: its Write may end before there is any.
func TestCutMessage(t *testing.T) {
	for _, busy := range []bool{false, true} {
		client, server := atRingEnd(t)
		e := client.e
		under := 0 // way, beside
		if busy {
			under = sendDepth / 2 / aheadRoom
		}
		e.mu.Lock()
		e.sq.ahead += under
		n, err := client.message(make([]byte, cutLength), nil, true, summed{})
		e.sq.ahead -= under
		wakes := e.state.Marked()
		_, _ = client.message(make([]byte, cutLength-n), nil, true, summed{})
		e.settle()
		e.mu.Unlock()
		require.NoError(t, err)
		require.Equal(t, cutBehind, n)
		require.Equal(t, busy, wakes, "busy: %v", busy)
		_, err = io.ReadFull(server, make([]byte, cutLength))
		require.NoError(t, err)
	}
}

// TestCutMessageTogether: the lock of the lane is not let go of between the two parts, or others could fill the
// send queue.
func TestCutMessageTogether(t *testing.T) {
	client, server := atRingEnd(t)
	e := client.e
	e.mu.Lock()
	client.out.share = turnBytes // it gives way to who waits
	marked := make(chan bool, 1)
	go func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		marked <- e.state.Marked()
	}()
	for !e.mu.contended() {
		runtime.Gosched()
	}
	n, err := client.send(make([]byte, cutLength))
	e.mu.Unlock()
	require.NoError(t, err)
	require.Equal(t, cutLength, n)
	require.True(t, <-marked)
	_, err = io.ReadFull(server, make([]byte, cutLength))
	require.NoError(t, err)
}
