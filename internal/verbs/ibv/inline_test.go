//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// Providers say in different ways how much inline data there may be.
func TestLargestInline(t *testing.T) {
	for name, make := range map[string]func(int) (int, error){
		"refuses more": func(n int) (int, error) {
			if n > 220 {
				return 0, syscall.EINVAL
			}
			return n, nil
		},
		"refuses more, grants in steps": func(n int) (int, error) {
			if n > 220 {
				return 0, failed("ibv_create_qp", syscall.ENOMEM)
			}
			return (n + 63) / 64 * 64, nil
		},
		"grants less": func(n int) (int, error) { return min(n, 220), nil },
	} {
		got, err := largestInline(make)
		require.NoError(t, err, name)
		assert.Equal(t, 220, got, name)
	}
	got, err := largestInline(func(n int) (int, error) { return 0, nil })
	require.NoError(t, err)
	assert.Zero(t, got)
}

// TestInlineWhileShort: a shortage, or a device that is gone, is not what a device grants. One that has
// passed is nothing, and one that lasts is an error.
func TestInlineWhileShort(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOMEM, syscall.EAGAIN, syscall.EIO} {
		for _, short := range []int{1, 3} {
			asked := 0
			make := func(n int) (int, error) {
				if asked++; asked > 7 && asked <= 7+short {
					return 0, failed("ibv_create_qp", errno)
				}
				if n > 512 {
					return 0, failed("ibv_create_qp", syscall.EINVAL)
				}
				return n, nil
			}
			got, err := largestInline(make)
			if short > 1 {
				require.ErrorIs(t, err, errno)
				continue
			}
			require.NoError(t, err, "%v", errno)
			require.Equal(t, 512, got, "%v", errno)
		}
	}
}

func TestNoRCQPs(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EOPNOTSUPP, syscall.EINVAL} {
		_, err := largestInline(func(int) (int, error) { return 0, failed("ibv_create_qp", errno) })
		require.ErrorIs(t, err, verbs.ErrNotSupported)
		require.ErrorContains(t, err, "no RC QPs")
	}
	_, err := largestInline(func(int) (int, error) { return 0, syscall.ENOMEM })
	require.NotErrorIs(t, err, verbs.ErrNotSupported)
	require.ErrorIs(t, err, syscall.ENOMEM)
}

func TestTransport(t *testing.T) {
	const unspecified = 7 // IBV_NODE_UNSPECIFIED
	for _, c := range []struct {
		node  int32
		layer string
		want  verbs.Transport
	}{
		{nodeCA, "InfiniBand", verbs.TransportIB},
		{nodeCA, "Ethernet", verbs.TransportRoCE},
		{nodeRNIC, "Ethernet", verbs.TransportIWARP},
		{nodeRNIC, "", verbs.TransportIWARP},
		{unspecified, "Unknown", verbs.TransportUnknown},  // EFA
		{unspecified, "Ethernet", verbs.TransportUnknown}, // usNIC
		{nodeCA, "Unknown", verbs.TransportUnknown},
		{nodeCA, "", verbs.TransportUnknown}, // not to be read
	} {
		assert.Equal(t, c.want, transport(c.node, c.layer), "%d %q", c.node, c.layer)
	}
}
