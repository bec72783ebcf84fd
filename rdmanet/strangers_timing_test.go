//go:build timing

package rdmanet

import "testing"

// What strangers can do about time. The bounds are where the tests stand; see promise.

func TestTimingStrangersSilent(t *testing.T)  { holdPromises(t, TestStrangersSilent) }
func TestTimingStrangersAtClose(t *testing.T) { holdPromises(t, TestStrangersAtClose) }
func TestTimingHostileTCP(t *testing.T)       { holdPromises(t, TestHostileTCP) }
