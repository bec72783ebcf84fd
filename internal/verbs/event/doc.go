// Package event holds what a driver has to tell until it can be told: the events of
// a connection manager's id, which go to its sink in order and one at a time, and
// the asynchronous events of a device, which wait until somebody asks.
package event
