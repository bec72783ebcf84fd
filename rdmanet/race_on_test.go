//go:build race

package rdmanet

// raceEnabled says that the race detector is on, which allocates.
const raceEnabled = true
