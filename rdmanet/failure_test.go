package rdmanet

import (
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// failSending is what a Write may meet before a Read looks: completions of the
// two queues come in no order.
func failSending(c *Conn) {
	c.tx.Lock()
	defer c.tx.Unlock()
	c.sendFailed(verbs.WCRemOpErr)
}

// arrived waits until all that c has sent is with the peer.
func arrived(t *testing.T, c *Conn) {
	t.Helper()
	c.tx.Lock()
	defer c.tx.Unlock()
	last := verbs.SendWR{Opcode: verbs.WRRDMAWrite, RemoteAddr: c.ep.peerAddr, RKey: c.ep.peerRKey}
	require.NoError(t, c.sq.post([]verbs.SendWR{last}, true))
	require.Eventually(t, func() bool { return c.sq.reap() == nil && c.sq.idle() }, patience, time.Millisecond)
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
			failSending(client)
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
			failSending(client)
			require.Len(t, readFull(t, client, 40*8), 40*8)
			_, err := client.Read(make([]byte, 1))
			require.ErrorIs(t, err, syscall.ECONNRESET)
			require.ErrorIs(t, err, verbs.WCRemOpErr)
		})
	})
}
