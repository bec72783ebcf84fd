//go:build timing

package rdmanet

import "testing"

// Deadlines fire within 5 ms. The bounds are where the tests stand; see promise.

func TestTimingDeadlines(t *testing.T)      { holdPromises(t, TestDeadlinesFire) }
func TestTimingAcceptDeadline(t *testing.T) { holdPromises(t, TestAcceptDeadlineFires) }
