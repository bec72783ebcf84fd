//go:build timing && linux

package rdmanet

import "testing"

// How soon it is noticed that the process of the peer was killed, and that one that is
// stopped delays nothing. The bounds are where the tests stand; see promise.

func TestTimingKillInMidStream(t *testing.T) { holdPromises(t, TestTwoProcessKillInMidStream) }
func TestTimingKillWhileIdle(t *testing.T)   { holdPromises(t, TestTwoProcessKillWhileIdle) }
func TestTimingKillUnnoticed(t *testing.T)   { holdPromises(t, TestTwoProcessKillUnnoticed) }
func TestTimingKillWriter(t *testing.T)      { holdPromises(t, TestTwoProcessKillWriter) }
func TestTimingKillRounds(t *testing.T)      { holdPromises(t, TestKillRounds) }
func TestTimingStop(t *testing.T)            { holdPromises(t, TestTwoProcessStop) }
func TestTimingStopAndClose(t *testing.T)    { holdPromises(t, TestTwoProcessStopAndClose) }
func TestTimingStopRounds(t *testing.T)      { holdPromises(t, TestStopRounds) }
func TestTimingExecOutlived(t *testing.T)    { holdPromises(t, TestExecOutlived) }
