// Package memory has the registered memory of lanes: a Slab, of which the rings of streams and the
// Buffers that they send from are pieces, and the Budget that bounds all Slabs of a process. It
// knows neither lanes nor streams, starts no goroutine, and imports nothing of ours but
// verbs and ring/lane.
package memory
