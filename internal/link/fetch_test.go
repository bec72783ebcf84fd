package link

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// TestFetch: of no message is anything asked for that is not in the ring of its stream, wherever that
// has got to.
func TestFetch(t *testing.T) {
	client, server := newBed(t, Config{}).pair()
	fetch := func() {
		server.e.mu.Lock()
		defer server.e.mu.Unlock()
		for _, n := range []uint32{1, maxFetch - 1, maxFetch, maxFetch + 1, lane.MaxMessage} {
			server.fetch(n)
		}
	}
	for range client.st.Sender().Ring().Size + 10 {
		_, err := client.Write([]byte("x"))
		require.NoError(t, err)
		_, err = io.ReadFull(server, make([]byte, 1))
		require.NoError(t, err)
		fetch()
	}
}
