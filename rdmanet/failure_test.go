package rdmanet

import (
	"io"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// failSending is what a Write may meet before a Read looks: completions of the
// two queues come in no order.
func failSending(c *Conn, status verbs.WCStatus) {
	c.send.mu.Lock()
	defer c.send.mu.Unlock()
	c.send.sendFailed(status)
}

// arrived waits until all that c has sent is with the peer.
func arrived(t *testing.T, c *Conn) {
	t.Helper()
	if overLinks {
		arrivedByLink(t, c)
		return
	}
	c.send.mu.Lock()
	defer c.send.mu.Unlock()
	require.True(t, c.send.sendGathered())
	last := verbs.SendWR{Opcode: verbs.WRRDMAWrite, RemoteAddr: c.ep.peerAddr, RKey: c.ep.peerRKey}
	require.NoError(t, c.send.sq.post([]verbs.SendWR{last}, true))
	require.Eventually(t, func() bool { return c.send.sq.reap() == nil && c.send.sq.idle() }, patience, time.Millisecond)
}

// aloof is a QP that takes nothing any more, as those of some devices do in ERR.
type aloof struct{ verbs.QP }

func (aloof) PostRecv([]verbs.RecvWR) (int, error) { return 0, verbs.ErrInvalid }
func (aloof) PostSend([]verbs.SendWR) (int, error) { return 0, verbs.ErrInvalid }

// TestRefusedRequests has the peer leave, and the device then refuse requests: that is
// no reason of its own.
func TestRefusedRequests(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(*Conn) error
		want  error
	}{
		"in good order":  {(*Conn).Close, syscall.EPIPE},
		"without a word": {func(c *Conn) error { c.ep.abort(); return nil }, ErrPeerGone},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := pair(t)
			require.NoError(t, c.leave(server))
			require.Eventually(t, func() bool { return client.ep.qp.State() == verbs.QPErr }, patience, time.Millisecond)
			client.send.mu.Lock()
			client.send.sq.qp = aloof{client.send.sq.qp}
			client.send.mu.Unlock()
			client.term.marks.And(^uint32(termSendDone)) // the device may know before the connection manager
			_, err := client.Write([]byte("x"))
			require.ErrorIs(t, err, c.want)
			require.NotErrorIs(t, err, verbs.ErrInvalid)
		})
	}
}

// TestRefusedReceives has the peer leave, and the device then refuse to take the
// receives of what had arrived again: no byte of it is lost.
func TestRefusedReceives(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(*Conn) error
		end   error
	}{
		"in good order":  {(*Conn).Close, io.EOF},
		"without a word": {func(c *Conn) error { c.ep.abort(); return nil }, syscall.ECONNRESET},
	} {
		t.Run(name, func(t *testing.T) {
			eachFlavour(t, func(t *testing.T, fl flavour) {
				client, server := fl.pair(t)
				for range 40 { // more than one poll takes
					_, err := server.Write([]byte("precious"))
					require.NoError(t, err)
				}
				arrived(t, server)
				require.NoError(t, c.leave(server))
				require.Eventually(t, func() bool { return client.term.sendDone() }, patience, time.Millisecond)
				client.recv.mu.Lock()
				client.ep.qp = aloof{client.ep.qp}
				client.recv.mu.Unlock()
				require.Len(t, readFull(t, client, 40*8), 40*8)
				_, err := client.Read(make([]byte, 1))
				require.ErrorIs(t, err, c.end)
				if c.end != io.EOF {
					require.ErrorIs(t, err, ErrPeerGone)
				}
			})
		})
	}
}

// TestFailureAfterArrival has a connection that fails on the sending side while
// arrivals lie in the CQ: they come first, and an orderly end stays one.
func TestFailureAfterArrival(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		t.Run("end of file", func(t *testing.T) {
			client, server := fl.pair(t)
			_, err := server.Write([]byte("precious"))
			require.NoError(t, err)
			require.NoError(t, server.Close())
			<-server.torn // behind all that it sent
			failSending(client, verbs.WCRemOpErr)
			b, err := io.ReadAll(client)
			require.NoError(t, err)
			require.Equal(t, "precious", string(b))
			_, err = client.Write([]byte("x"))
			require.ErrorIs(t, err, syscall.EPIPE)
		})
		t.Run("failure", func(t *testing.T) {
			client, server := fl.pair(t)
			for range 40 { // more than one poll takes
				_, err := server.Write([]byte("precious"))
				require.NoError(t, err)
			}
			arrived(t, server)
			failSending(client, verbs.WCRemOpErr)
			require.Len(t, readFull(t, client, 40*8), 40*8)
			_, err := client.Read(make([]byte, 1))
			require.ErrorIs(t, err, syscall.ECONNRESET)
			require.ErrorIs(t, err, verbs.WCRemOpErr)
		})
	})
}

// TestPeerTakesMemoryAway has the peer's device refuse a request, as it does when the
// system takes apart what a killed process had: that is the end of the peer.
func TestPeerTakesMemoryAway(t *testing.T) {
	client, _ := pair(t)
	client.send.mu.Lock()
	client.send.sendFailed(verbs.WCRemAccessErr)
	client.send.mu.Unlock()
	_, err := client.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.ErrorIs(t, err, ErrPeerGone)
	require.ErrorIs(t, err, verbs.WCRemAccessErr)
}

// countingID counts how often its connection is to be ended.
type countingID struct {
	identifier
	ended atomic.Int32
}

func (id *countingID) Disconnect() error {
	id.ended.Add(1)
	return nil
}

// TestDisconnectsWhereHeard has connections over a network fail. The peer is told, but
// not where it cannot be heard any more: a goodbye would reach a peer that waits for its
// own timeout, or a link that is down.
func TestDisconnectsWhereHeard(t *testing.T) {
	ours := func(c *Conn) { c.fail(syscall.ECONNABORTED, ErrProtocol) }
	sending := func(status verbs.WCStatus) func(*Conn) {
		return func(c *Conn) { failSending(c, status) }
	}
	for name, c := range map[string]struct {
		fail []func(*Conn)
		want int32
	}{
		"not answered":      {[]func(*Conn){sending(verbs.WCRetryExcErr)}, 0},
		"flushed":           {[]func(*Conn){sending(verbs.WCWRFlushErr), (*Conn).failGone}, 0},
		"silent":            {[]func(*Conn){func(c *Conn) { c.fail(syscall.ETIMEDOUT, ErrPeerGone) }}, 0},
		"corrupt":           {[]func(*Conn){func(c *Conn) { c.term.toldCorrupt() }, ours}, 0},
		"our doing":         {[]func(*Conn){ours, ours}, 1},
		"refused":           {[]func(*Conn){sending(verbs.WCRemOpErr), ours}, 1},
		"flushed, by us":    {[]func(*Conn){sending(verbs.WCWRFlushErr), ours}, 1},
		"ended by the peer": {[]func(*Conn){func(c *Conn) { c.event(&cm.Event{Type: cm.Disconnected}) }, ours}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			client, _ := pair(t)
			id := &countingID{identifier: client.ep.id}
			client.ep.id = id
			client.ep.sameHost = false
			for _, f := range c.fail {
				f(client)
			}
			require.Equal(t, c.want > 0, client.term.has(termDisconnected))
			require.Eventually(t, func() bool { return id.ended.Load() >= c.want }, patience, time.Millisecond)
			client.ep.sameHost = true
			require.NoError(t, client.Close())
			<-client.torn
			require.Equal(t, c.want+1, id.ended.Load(), "Close disconnects as well")
		})
	}
}
