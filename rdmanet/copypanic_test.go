package rdmanet

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// panicker is what a copy must not trust.
type panicker struct{}

func (panicker) Write([]byte) (int, error) { panic("write") }
func (panicker) Read([]byte) (int, error)  { panic("read") }

// TestCopyPanics has the other side of a copy panic, as an http handler may: the
// connection is as usable as before, and can be closed.
func TestCopyPanics(t *testing.T) {
	client, server := pair(t)
	_, err := server.Write([]byte("hello"))
	require.NoError(t, err)
	for range 2 * mostBuffers {
		require.PanicsWithValue(t, "write", func() { _, _ = client.WriteTo(panicker{}) })
		require.PanicsWithValue(t, "read", func() { _, _ = client.ReadFrom(panicker{}) })
	}
	within(t, patience, "Read", func() { require.Equal(t, "hello", string(readFull(t, client, 5))) })
	require.NoError(t, client.Close())
	promptly(t, client)
}
