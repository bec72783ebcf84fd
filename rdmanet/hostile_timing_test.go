//go:build timing

package rdmanet

import "testing"

// What a hostile peer can do about time. The bounds are where the tests stand; see promise.

func TestTimingHostileWire(t *testing.T)       { holdPromises(t, TestHostileWire) }
func TestTimingHostileAsleep(t *testing.T)     { holdPromises(t, TestHostileAsleep) }
func TestTimingHostileRKey(t *testing.T)       { holdPromises(t, TestHostileRKey) }
func TestTimingHostileVanish(t *testing.T)     { holdPromises(t, TestHostileVanish) }
func TestTimingHostileFlood(t *testing.T)      { holdPromises(t, TestHostileFlood) }
func TestTimingHostileRing(t *testing.T)       { holdPromises(t, TestHostileRing) }
func TestTimingHostileNoCredit(t *testing.T)   { holdPromises(t, TestHostileNoCredit) }
func TestTimingHostileNoReceives(t *testing.T) { holdPromises(t, TestHostileNoReceives) }
func TestTimingHostileByteAMinute(t *testing.T) {
	holdPromises(t, TestHostileByteAMinute)
}
func TestTimingStrangersSilent(t *testing.T)  { holdPromises(t, TestStrangersSilent) }
func TestTimingStrangersAtClose(t *testing.T) { holdPromises(t, TestStrangersAtClose) }
func TestTimingHostileTCP(t *testing.T)       { holdPromises(t, TestHostileTCP) }
