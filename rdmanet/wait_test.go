package rdmanet

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// TestWaitWhileClosing has calls that see the Close before it has said anything else.
func TestWaitWhileClosing(t *testing.T) {
	client, _ := pair(t)
	require.True(t, client.life.close())
	client.term.close()
	within(t, patience, "wait", func() {
		require.ErrorIs(t, client.wait(dirRead), net.ErrClosed)
		require.ErrorIs(t, client.wait(dirWrite), net.ErrClosed)
	})
	client.sayGoodbye()
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
			client.tx.Lock()
			client.sq.cq = silentCQ{cq}
			client.sq.posted = client.sq.completed + uint64(client.sq.cap)
			client.tx.Unlock()
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
			client.tx.Lock()
			client.sq.cq = cq
			all := verbs.SendWR{
				WRID: client.sq.posted, Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
				RemoteAddr: client.ep.peerAddr, RKey: client.ep.peerRKey,
			}
			_, err := client.ep.qp.PostSend([]verbs.SendWR{all})
			client.tx.Unlock()
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
	client.tx.Lock()
	client.sq.cq = cq
	client.sq.posted = client.sq.completed + uint64(client.sq.cap)
	client.tx.Unlock()
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
