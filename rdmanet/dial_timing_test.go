//go:build timing

package rdmanet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTimingPlainServer: a server of package net costs a dialer that would rather have RDMA
// less than half of RDMA's head start.
func TestTimingPlainServer(t *testing.T) { holdPromises(t, TestPlainServer) }

// TestTimingHeadStart: RDMA needs less than its head start.
func TestTimingHeadStart(t *testing.T) {
	withHeadStart(t, rdmaHeadStart)
	TestFastRDMALeavesNoTrace(t)
}

// TestTimingLittleTime: with less time than its head start RDMA has half of it, and TCP the
// other.
func TestTimingLittleTime(t *testing.T) {
	l := silentOverRDMA(t)
	withHeadStart(t, rdmaHeadStart)
	d := Dialer{Logger: quiet, RetryRDMA: -1, Timeout: slowly(100 * time.Millisecond)}
	c, err := d.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	requireKind(t, false, c)
	require.NoError(t, c.Close())
}
