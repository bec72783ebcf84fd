package bench

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if os.Getenv(roleVar) == roleWorker {
		os.Exit(serveOrders())
	}
	status := Main(m)
	closeCrowd()
	os.Exit(status)
}

// TestBenchmarkSmoke runs every benchmark of this package for a few messages.
func TestBenchmarkSmoke(t *testing.T) {
	Try(t, map[string][]Case{
		"HTTP": httpCases(), "TLS": tlsCases(), "DialCrowd": crowdCases(),
		"Beside": besideCases(), "Unread": unreadCases(),
		"Busy": busyCases(), "Scale": smokeCases(scaleCases()), "Copies": copyCases(),
		"Checksum": checksumCases(), "Idle": idleCases(16),
	})
}
