package main

import (
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/rdmanet"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// here is a device that must work, and an address of it.
func here(t *testing.T) (device string, at netip.Addr) {
	t.Helper()
	devices, err := rdmanet.Devices()
	if len(devices) == 0 {
		require.ErrorIs(t, err, verbs.ErrNotSupported)
		t.Skip("this system has no RDMA devices: the doctor needs linux on amd64 or arm64 to have something to test")
	}
	return devices[0].Name, bestAddr(devices[0].Addrs)
}

func TestEcho(t *testing.T) {
	device, at := here(t)
	o, err := echo(t.Context(), device, at)
	require.NoError(t, err)
	assert.EqualValues(t, echoSize, o.bytes)
	assert.Positive(t, o.took)
	assert.Positive(t, o.costs.descriptors)
	assert.Less(t, o.costs.descriptors, 10)
	assert.Zero(t, o.costs.locked, "the software device locks nothing")
}

func TestEchoOnADeviceThatIsNotThere(t *testing.T) {
	_, at := here(t)
	_, err := echo(t.Context(), "mlx5_9", at)
	assert.ErrorIs(t, err, verbs.ErrNoDevice)
}

func TestEchoEndsWithTheContext(t *testing.T) {
	device, at := here(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := echo(ctx, device, at)
	assert.ErrorIs(t, err, context.Canceled)
}

// exchangeWith runs exchange against a server.
func exchangeWith(t *testing.T, ctx context.Context, server func(net.Conn)) error {
	t.Helper()
	client, conn := net.Pipe()
	defer client.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer conn.Close()
		server(conn)
	}()
	defer func() { client.Close(); <-done }()
	return exchange(ctx, client, echoSize)
}

func TestExchangeComparesWhatComesBack(t *testing.T) {
	assert.NoError(t, exchangeWith(t, t.Context(), func(c net.Conn) { _, _ = io.Copy(c, c) }))
	assert.ErrorIs(t, exchangeWith(t, t.Context(), func(c net.Conn) {
		buf := make([]byte, 4096)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			buf[0] ^= 1
			_, _ = c.Write(buf[:n])
		}
	}), errWrongBytes)
}

func TestExchangeWithServerThatGoes(t *testing.T) {
	assert.Error(t, exchangeWith(t, t.Context(), func(c net.Conn) { _, _ = io.CopyN(c, c, 5000) }))
	assert.Error(t, exchangeWith(t, t.Context(), func(net.Conn) {}))
}

func TestExchangeWithServerThatIsSilent(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	assert.ErrorIs(t, exchangeWith(t, ctx, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }), context.DeadlineExceeded)
}
