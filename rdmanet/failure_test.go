package rdmanet

import (
	"io"
	"syscall"
	"testing"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/stretchr/testify/require"
)

// failSending is what a Write may meet before a Read looks: completions of the
// two queues come in no order.
func failSending(c *Conn) {
	c.tx.Lock()
	defer c.tx.Unlock()
	c.sendFailed(verbs.WCRemOpErr)
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
			failSending(client)
			require.Len(t, readFull(t, client, 40*8), 40*8)
			_, err := client.Read(make([]byte, 1))
			require.ErrorIs(t, err, syscall.ECONNRESET)
			require.ErrorIs(t, err, verbs.WCRemOpErr)
		})
	})
}
