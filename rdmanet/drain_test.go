package rdmanet

import (
	"testing"
	"time"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/stretchr/testify/require"
)

// promptly fails the test if the teardown of a closed Conn waits for the drain's limit.
func promptly(t *testing.T, c *Conn) {
	t.Helper()
	began := time.Now()
	select {
	case <-c.torn:
	case <-time.After(defaultDrain * 3 / 4):
		t.Fatal("the connection lingers")
	}
	promise(t, "the teardown", time.Since(began), defaultDrain/4)
}

// takeSlots leaves no slot for any message.
func takeSlots(c *Conn) {
	c.send.mu.Lock()
	defer c.send.mu.Unlock()
	for c.send.ring.ControlSlots() > 0 {
		c.send.ring.SentControl()
	}
}

// TestDrainBehindCredit has a call that returns credit after the Close was posted:
// nobody hears that the credit, which is not signalled, has completed.
func TestDrainBehindCredit(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		client, _ := fl.pair(t)
		require.True(t, client.life.incref())
		require.NoError(t, client.Close())
		client.recv.mu.Lock()
		client.recv.returnCredit()
		client.recv.mu.Unlock()
		client.exit(client.life.decref())
		promptly(t, client)
	})
}

// TestDrainReset has no slot for a Reset, which is not worth waiting for.
func TestDrainReset(t *testing.T) {
	client, _ := pair(t)
	takeSlots(client)
	require.NoError(t, client.SetLinger(0))
	require.NoError(t, client.Close())
	promptly(t, client)
}

// TestDrainPeerCloses has a Close that waits for a slot when the peer closes too.
func TestDrainPeerCloses(t *testing.T) {
	client, server := pair(t)
	takeSlots(client)
	require.NoError(t, client.Close())
	require.NoError(t, server.Close())
	promptly(t, client)
}

// TestDrainDisconnect has a device on which a disconnect does not flush the QP of a
// connection that drains.
func TestDrainDisconnect(t *testing.T) {
	client, _ := pair(t)
	takeSlots(client)
	armed := make(chan struct{}, 1)
	client.ep.sendCQ = &tellingCQ{client.ep.sendCQ, armed}
	require.NoError(t, client.Close())
	<-armed
	// It sleeps, or will before this is told.
	time.AfterFunc(10*time.Millisecond, func() { client.event(&cm.Event{Type: cm.Disconnected}) })
	promptly(t, client)
}

// tellingCQ tells that it was armed.
type tellingCQ struct {
	verbs.CQ
	armed chan struct{}
}

func (q *tellingCQ) ReqNotify(solicitedOnly bool) error {
	select {
	case q.armed <- struct{}{}:
	default:
	}
	return q.CQ.ReqNotify(solicitedOnly)
}
