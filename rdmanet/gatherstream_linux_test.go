package rdmanet

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGatherStream has all ways of writing and a device that is fast and slow in turn.
func TestGatherStream(t *testing.T) {
	seed := testSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	client, server, cq := slowPair(t, Dialer{}, ListenConfig{})
	const total = 8 << 20
	arrived := make(chan RemoteSum, 1)
	go func() { arrived <- sum(server) }()
	var all bytes.Buffer
	for all.Len() < total {
		size := 1 + rng.IntN(1<<(1+rng.IntN(13)))
		b := modelStream[rng.IntN(modelPeriod):][:size]
		all.Write(b)
		cq.shut.Store(rng.IntN(8) > 0)
		var err error
		switch rng.IntN(16) {
		case 0:
			_, err = client.ReadFrom(bytes.NewReader(b))
		case 1:
			var to []byte
			if to, err = client.Reserve(size); err == nil {
				copy(to, b)
				err = client.Commit(size)
			}
		default:
			_, err = client.Write(b)
		}
		require.NoError(t, err)
	}
	require.NoError(t, client.CloseWrite())
	require.Equal(t, sum(&all), <-arrived)
	client.send.mu.Lock()
	defer client.send.mu.Unlock()
	require.Positive(t, client.send.gathered.writes)
}
