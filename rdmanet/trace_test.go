package rdmanet

import (
	"bytes"
	"runtime/trace"
	"testing"

	"github.com/stretchr/testify/require"
)

// stalled makes connections of which one waits for its peer to read.
func stalled(t *testing.T) {
	t.Helper()
	client, server := flavour{dialer: Dialer{ReadBuffer: MinReadBuffer}, listen: ListenConfig{ReadBuffer: MinReadBuffer}}.pair(t)
	done := make(chan error, 1)
	go func() {
		_, err := client.Write(make([]byte, 4*MinReadBuffer))
		done <- err
	}()
	readFull(t, server, 4*MinReadBuffer)
	require.NoError(t, <-done)
	require.Positive(t, client.Stats().CreditStalls)
}

// TestTrace looks for the names in the trace, where they stand as they are.
func TestTrace(t *testing.T) {
	var buf bytes.Buffer
	require.NoError(t, trace.Start(&buf))
	stalled(t)
	_, err := Dial("rdma", "127.0.0.1:1")
	require.Error(t, err)
	trace.Stop()
	for _, name := range []string{traceDial, "rdmanet.Accept", "rdmanet.stall"} {
		require.True(t, bytes.Contains(buf.Bytes(), []byte(name)), name)
	}
}

func TestTraceCostsNothingWhenOff(t *testing.T) {
	ctx := t.Context()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_, task := traceDialling(ctx, "rdma", "127.0.0.1:1")
		task.end()
	}))
}
