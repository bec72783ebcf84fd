package main

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBenchmarksExist: what is compared is there under its name. A pattern that matches nothing passes.
func TestBenchmarksExist(t *testing.T) {
	for _, b := range []benchmark{
		{"../..", "Dial/goroutines=1", "tcp", 0, ""},
		{"../..", "Stream", "tcp", 4 << 10, ""},
		{"../..", "Echo", "tcp", 64, ""},
		{"../..", "EchoPolled", "rdma", 64, ""},
		{"../../internal/bench", "DialCrowd", "tcp", 0, ""},
	} {
		output, err := exec.Command("go", "test", "-run", "^$", "-bench", b.pattern(), "-benchtime", "1x", b.path).CombinedOutput()
		require.NoError(t, err, "%s", output)
		_, err = parseBenchmark(string(output), "ns/op")
		require.NoError(t, err, "%s: %s", b.pattern(), output)
	}
}
