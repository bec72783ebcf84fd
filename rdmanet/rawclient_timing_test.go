//go:build timing

package rdmanet

import "testing"

// What raw clients can do about time. The bounds are where the tests stand; see promise.

func TestTimingRawClientsSilent(t *testing.T)  { holdPromises(t, TestRawClientsSilent) }
func TestTimingRawClientsAtClose(t *testing.T) { holdPromises(t, TestRawClientsAtClose) }
func TestTimingHostileTCP(t *testing.T)        { holdPromises(t, TestHostileTCP) }
