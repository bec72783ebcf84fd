//go:build !race

package rdmanet

// raceEnabled reports that the race detector is on, which allocates.
const raceEnabled = false
