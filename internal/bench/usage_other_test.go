//go:build !linux

package bench

import (
	"math"
	"time"
)

// What a process uses is asked of Linux only.

func (u *usage) measureProcess() error { return nil }

func cpuTime() (time.Duration, error) { return 0, nil }

func processLimits() (descriptors, mappings int64, err error) {
	return math.MaxInt64, math.MaxInt64, nil
}
