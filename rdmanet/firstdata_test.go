package rdmanet

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// networkPair has a connection of the software device behave as one of a network.
func networkPair(t *testing.T) (client, server *Conn) {
	t.Helper()
	client, server = pair(t)
	server.ep.sameHost = false
	return client, server
}

func TestFirstDataConfirms(t *testing.T) {
	client, server := networkPair(t)
	told := make(chan struct{})
	stop := server.awaitFirstData(func() { close(told) })
	_, err := client.Write([]byte("first"))
	require.NoError(t, err)
	<-told
	stop()
	require.NoError(t, client.CloseWrite())
	got, err := io.ReadAll(server) // nothing of it was taken
	require.NoError(t, err)
	require.Equal(t, "first", string(got))
}

// A client that confirms in time and says nothing costs no wait, and leaves no deadline.
func TestNoFirstData(t *testing.T) {
	client, server := networkPair(t)
	if server.ep.confirm != nil {
		t.Skip("on iWARP the first word has arrived before anybody has the connection")
	}
	stop := server.awaitFirstData(func() { t.Error("nothing has arrived") })
	stop()
	stop = server.awaitFirstData(func() { t.Error("nothing has arrived") })
	time.Sleep(2 * firstDataAfter) // by now it waits, or is about to
	stop()
	_, err := client.Write([]byte("later"))
	require.NoError(t, err)
	buf := make([]byte, 5)
	_, err = io.ReadFull(server, buf)
	require.NoError(t, err)
	require.Equal(t, "later", string(buf))
}
