package rdmanet

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// inHand is how many requests have led to a connection, or may yet. A busy machine may have
// a dialer lose one and ask again, or make it so late that it gives way.
func inHand(s ListenerStats) uint64 { return s.Requests - s.Failed - s.Refused - s.Evicted }

// TestDefaultBacklog compares with what the system says.
func TestDefaultBacklog(t *testing.T) {
	for text, want := range map[string]int{
		"4096\n": 4096, "1\n": 1, "65536\n": 65536, "0\n": 128, "": 128, "-5\n": 128, "many\n": 128,
		"99999999999\n": 1<<31 - 1,
	} {
		require.Equal(t, want, parseSomaxconn(text), "%q", text)
	}
	if b, err := os.ReadFile("/proc/sys/net/core/somaxconn"); err == nil {
		require.Equal(t, parseSomaxconn(string(b)), DefaultBacklog())
	}
	for backlog, want := range map[int]int{0: DefaultBacklog(), 7: 7, 1 << 30: 1 << 30} {
		require.Equal(t, want, newListener("rdma", sizes{}, &ListenConfig{Backlog: backlog}).backlog)
	}
}
