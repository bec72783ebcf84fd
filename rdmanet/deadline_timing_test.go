//go:build timing

package rdmanet

import "testing"

// Deadlines fire within 5 ms, polling ends in time, and teardown waits for nothing. The
// bounds are where the tests stand; see promise.

func TestTimingDeadlines(t *testing.T)       { holdPromises(t, TestDeadlinesFire) }
func TestTimingAcceptDeadline(t *testing.T)  { holdPromises(t, TestAcceptDeadlineFires) }
func TestTimingSpin(t *testing.T)            { holdPromises(t, TestSpinEnds) }
func TestTimingDrainCredit(t *testing.T)     { holdPromises(t, TestDrainBehindCredit) }
func TestTimingDrainReset(t *testing.T)      { holdPromises(t, TestDrainReset) }
func TestTimingDrainPeerCloses(t *testing.T) { holdPromises(t, TestDrainPeerCloses) }
func TestTimingDrainDisconnect(t *testing.T) { holdPromises(t, TestDrainDisconnect) }
func TestTimingGatherPeerCloses(t *testing.T) {
	holdPromises(t, TestGatherPeerCloses)
}
