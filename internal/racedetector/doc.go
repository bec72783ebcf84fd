// Package racedetector tells tests whether they were built with the race detector, and that detector what
// memory which it does not watch puts in order.
package racedetector
