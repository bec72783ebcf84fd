//go:build !race

package racedetector

// Enabled reports whether the race detector is on. It allocates, and takes several times as long.
const Enabled = false
