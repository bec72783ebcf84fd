// Package memory has the registered memory of lanes: a Slab, of which the rings of streams and the
// Buffers that they send from are pieces, and the Budget that bounds all Slabs of a process. It
// knows neither lanes nor streams, and imports nothing of ours but verbs, what drivers add to them
// and ring/lane. A Slab has one goroutine while peers have to let go of memory that it gives back.
package memory
