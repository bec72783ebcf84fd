package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// sharedMemory is how much memory that can be shared the process has made.
func sharedMemory(t *testing.T) (n int64) {
	const dir = "/proc/self/fd"
	open, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, fd := range open {
		name := filepath.Join(dir, fd.Name())
		if to, err := os.Readlink(name); err == nil && strings.HasPrefix(to, "/memfd:") {
			info, err := os.Stat(name)
			require.NoError(t, err)
			n += info.Size()
		}
	}
	return n
}

// What is said of a lane where nothing was measured is what one takes on the software device. Lanes
// that earlier tests have left may end meanwhile, so it is looked at more than once.
func TestUsualCosts(t *testing.T) {
	here(t)
	var descriptors int
	var shared int64
	assert.Eventually(t, func() bool {
		descriptors, shared = laneCosts(t)
		return descriptors <= 2*usual.descriptors && descriptors > 2*(usual.descriptors-2) && shared <= 2*perLane && shared > 2*perLane*7/8
	}, 30*time.Second, 50*time.Millisecond)
	assert.LessOrEqual(t, descriptors, 2*usual.descriptors)
	assert.Greater(t, descriptors, 2*(usual.descriptors-2))
	assert.LessOrEqual(t, shared, int64(2*perLane))
	assert.Greater(t, shared, int64(2*perLane)*7/8)
}

// laneCosts is what both ends of a lane take.
func laneCosts(t *testing.T) (descriptors int, shared int64) {
	l, err := (&rdmanet.ListenConfig{Device: "soft0"}).Listen(t.Context(), "rdma", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	connect := func(d rdmanet.Dialer) (closeBoth func()) {
		d.Device = "soft0"
		client, err := d.DialContext(t.Context(), "rdma", l.Addr().String())
		require.NoError(t, err)
		server, err := l.Accept()
		require.NoError(t, err)
		_, err = client.Write([]byte{1})
		require.NoError(t, err)
		_, err = io.ReadFull(server, make([]byte, 1))
		require.NoError(t, err)
		return func() { client.Close(); server.Close() }
	}
	defer connect(rdmanet.Dialer{Checksum: true})() // which has a lane to itself
	before, had := settledUsage(), sharedMemory(t)
	defer connect(rdmanet.Dialer{})()
	return usage().descriptors - before.descriptors, sharedMemory(t) - had
}
