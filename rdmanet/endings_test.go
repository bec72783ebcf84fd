package rdmanet

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// requireClosed closes c and waits until nothing is left of it.
func requireClosed(t testing.TB, c *Conn) {
	t.Helper()
	require.NoError(t, c.Close())
	select {
	case <-c.done():
	case <-time.After(patience):
		t.Fatal("the connection was not torn down")
	}
}

// requireEnd sees that a Conn fails with want and is torn down by Close.
func requireEnd(t testing.TB, c *Conn, want error) {
	t.Helper()
	requireEndError(t, c, want)
	requireClosed(t, c)
}

// requireEndError sees that a Conn fails with want.
func requireEndError(t testing.TB, c *Conn, want error) {
	t.Helper()
	var err error
	inTime(t, soon, "the last call", func() { err = endError(c) })
	var op *net.OpError
	require.ErrorAs(t, err, &op)
	require.ErrorIs(t, err, want)
	assert.False(t, op.Timeout())
	// And so it stays.
	_, err = c.Write([]byte{1})
	require.Error(t, err)
}

// requireChecksumError sees that err says what a wrong checksum says, at either end.
func requireChecksumError(t *testing.T, err error) {
	t.Helper()
	var op *net.OpError
	require.ErrorAs(t, err, &op)
	require.ErrorIs(t, err, ErrChecksum)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.False(t, op.Timeout())
}

// promptly fails the test if the teardown of a closed Conn waits for the drain's limit.
func promptly(t *testing.T, c *Conn) {
	t.Helper()
	began := time.Now()
	select {
	case <-c.done():
	case <-time.After(defaultDrain * 3 / 4):
		t.Fatal("the connection lingers")
	}
	promise(t, "the teardown", time.Since(began), defaultDrain/4)
}

// endError reads until an error, and after an orderly end writes until one.
func endError(c *Conn) error {
	buf := make([]byte, 512)
	for {
		if _, err := c.Read(buf); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
	}
	for {
		if _, err := c.Write([]byte{1}); err != nil {
			return err
		}
	}
}
