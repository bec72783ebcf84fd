// Package racedetector tells tests whether they were built with the race detector.
package racedetector
