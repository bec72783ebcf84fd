package main

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBenchmarksExist: what is compared is there under its name. A pattern that matches nothing passes.
func TestBenchmarksExist(t *testing.T) {
	for _, b := range []benchmark{
		{path: "../..", work: "Dial/goroutines=1", transport: "tcp"},
		{path: "../..", work: "Stream", transport: "tcp", size: 4 << 10},
		{path: "../..", work: "Echo", transport: "tcp", size: 64},
		{path: "../..", work: "EchoPolled", transport: "rdma", size: 64},
		{path: "../../internal/bench", work: crowdWork, transport: "tcp"},
	} {
		output, err := exec.Command("go", "test", "-run", "^$", "-bench", b.pattern(), "-benchtime", "1x", b.path).CombinedOutput()
		require.NoError(t, err, "%s", output)
		_, err = parseBenchmark(string(output), "ns/op")
		require.NoError(t, err, "%s: %s", b.pattern(), output)
	}
}
