package rdmanet

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// A notedWait is a condition and the CQs that it is armed with: it notes what is done with them.
type notedWait struct {
	over  int // the try that finds the wait over, 0 for none
	sends bool
	fails string
	did   []string
	tries int
}

func (w *notedWait) try() bool {
	w.did = append(w.did, "try")
	w.tries++
	return w.tries == w.over
}

func (w *notedWait) beforeSleep() (needsSends bool) {
	w.did = append(w.did, "beforeSleep")
	return w.sends
}

// notedCQ is one of them.
type notedCQ struct {
	verbs.CQ
	wait *notedWait
	name string
}

func (q notedCQ) ReqNotify(bool) error {
	q.wait.did = append(q.wait.did, q.name)
	if q.wait.fails == q.name {
		return syscall.EIO
	}
	return nil
}

// TestArm has whoever sleeps poll again when what may wake it is armed, and not sleep where
// that is not possible.
func TestArm(t *testing.T) {
	const try, before, recv, send = "try", "beforeSleep", "recvCQ", "sendCQ"
	for _, c := range []struct {
		name string
		wait notedWait
		busy bool
		did  []string
		over bool
	}{
		{"receives", notedWait{}, false, []string{try, recv, before, try}, false},
		{"sends as well", notedWait{sends: true}, false, []string{try, recv, before, send, before, try}, false},
		{"over at once", notedWait{over: 1}, false, []string{try}, true},
		{"over when it is armed", notedWait{over: 2}, false, []string{try, recv, before, try}, true},
		{"more has arrived than was looked at", notedWait{}, true, []string{try}, true},
		{"receives cannot be armed", notedWait{fails: recv}, false, []string{try, recv}, true},
		{"sends cannot be armed", notedWait{sends: true, fails: send}, false, []string{try, recv, before, send}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, _ := pair(t)
			client.ep.recvCQ = notedCQ{client.ep.recvCQ, &c.wait, recv}
			client.ep.sendCQ = notedCQ{client.ep.sendCQ, &c.wait, send}
			client.recv.busy.Store(c.busy)
			require.Equal(t, c.over, client.arm(&c.wait))
			require.Equal(t, c.did, c.wait.did)
			require.Equal(t, c.wait.fails != "", client.term.failed())
		})
	}
}

// TestDrainCannotBeArmed: who cannot be woken does not wait, nor try for as long as it might.
func TestDrainCannotBeArmed(t *testing.T) {
	client, _ := pair(t)
	takeSlots(client)
	require.True(t, client.life.incref())
	require.NoError(t, client.CloseWrite())
	client.ep.sendCQ = notedCQ{client.ep.sendCQ, &notedWait{fails: "sendCQ"}, "sendCQ"}
	within(t, patience, "the drain", func() { client.drain(time.Hour) })
	require.ErrorIs(t, client.term.err(), syscall.ECONNABORTED)
	client.exit(client.life.decref())
}

// TestWaitWhileClosing has calls that see the Close before it has said anything else.
func TestWaitWhileClosing(t *testing.T) {
	client, _ := pair(t)
	require.True(t, client.life.close())
	client.term.close()
	within(t, patience, "wait", func() {
		require.ErrorIs(t, client.recv.wait(), net.ErrClosed)
		require.ErrorIs(t, client.send.waiter.wait(&client.stream, dirWrite, &client.send), net.ErrClosed)
	})
	client.sayGoodbye(false)
	client.exit(client.life.decref())
}

// silentCQ has nothing to tell.
type silentCQ struct{ verbs.CQ }

func (silentCQ) Poll([]verbs.WC) (int, error) { return 0, nil }

// TestReadOwesCredit has a reader that owes the peer a credit, or the end of its
// stream, while its send queue is full. It must hear of the room: the peer sleeps.
func TestReadOwesCredit(t *testing.T) {
	for _, what := range []string{"credit", "FIN"} {
		t.Run(what, func(t *testing.T) {
			client, server := pair(t)
			cq := client.ep.sendCQ
			armed := make(chan struct{}, 1)
			client.ep.sendCQ = &tellingCQ{cq, armed}
			client.send.mu.Lock()
			client.send.sq.cq = silentCQ{cq}
			client.send.sq.posted = client.send.sq.completed + uint64(client.send.sq.cap)
			client.send.mu.Unlock()
			if what == "FIN" {
				require.NoError(t, client.CloseWrite())
			} else {
				_, err := server.Write(make([]byte, firstRing()*3/4))
				require.NoError(t, err)
				readFull(t, client, firstRing()*3/4)
			}
			require.Zero(t, client.Stats().CreditsSent)
			done := make(chan error, 1)
			go func() {
				_, err := client.Read(make([]byte, 1))
				done <- err
			}()
			select {
			case <-armed:
			case <-time.After(patience):
				t.Fatal("the reader sleeps without a look at its requests")
			}
			client.send.mu.Lock()
			client.send.sq.cq = cq
			all := verbs.SendWR{
				WRID: client.send.sq.posted, Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
				RemoteAddr: client.ep.peerAddr, RKey: client.ep.peerRKey,
			}
			_, err := client.ep.qp.PostSend([]verbs.SendWR{all})
			client.send.mu.Unlock()
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				look(server)
				return server.Stats().CreditsReceived > 0 || server.term.has(termPeerFIN)
			}, patience, time.Millisecond)
			require.NoError(t, client.Close())
			require.ErrorIs(t, <-done, net.ErrClosed)
		})
	}
}

// lateCQ completes a request with an error between the arming and the last look.
type lateCQ struct {
	verbs.CQ
	armed, told bool
}

func (q *lateCQ) ReqNotify(solicitedOnly bool) error {
	q.armed = true
	return q.CQ.ReqNotify(solicitedOnly)
}

func (q *lateCQ) Poll(wcs []verbs.WC) (int, error) {
	if !q.armed || q.told {
		return 0, nil
	}
	q.told = true
	wcs[0] = verbs.WC{Status: verbs.WCWRFlushErr}
	return 1, nil
}

// TestWriteHearsFailure has a request fail when the writer has armed the CQ already, so
// that no event will come of it, and no receive be flushed.
func TestWriteHearsFailure(t *testing.T) {
	client, _ := pair(t)
	cq := &lateCQ{CQ: client.ep.sendCQ}
	client.ep.sendCQ = cq
	client.send.mu.Lock()
	client.send.sq.cq = cq
	client.send.sq.posted = client.send.sq.completed + uint64(client.send.sq.cap)
	client.send.mu.Unlock()
	within(t, patience, "Write", func() {
		_, err := client.Write([]byte("x"))
		require.ErrorIs(t, err, ErrPeerGone)
	})
}

// goneChannel is that of a device that was removed.
type goneChannel struct{ verbs.CompChannel }

func (goneChannel) WaitRead(func() bool) error { return verbs.ErrNoDevice }

// TestWaitOnRemovedDevice has the channel tell before the connection manager does.
func TestWaitOnRemovedDevice(t *testing.T) {
	client, _ := pair(t)
	client.ep.channel = goneChannel{client.ep.channel}
	for _, call := range []func([]byte) (int, error){client.Read, client.Write} {
		_, err := call(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ENODEV)
		require.ErrorIs(t, err, ErrNoDevice)
	}
}
