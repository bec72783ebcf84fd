//go:build timing && !linux

package link

import "time"

// cpuTime is not known here, where there is no device either.
func cpuTime() time.Duration { return 0 }
