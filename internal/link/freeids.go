package link

import (
	"math/bits"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// freeIDs are the ids of a lane that its listener may grant: those that were given back, and all
// from next on. A grant names ids that follow one another, so runs of them are looked for: one
// record grants many places. The lane's lock guards it.
type freeIDs struct {
	given []uint64 // back, a bit for each
	count int      // of them
	next  lane.ID  // the first that never was granted
	last  lane.ID
}

// len returns how many there are.
func (f *freeIDs) len() int { return f.count + f.unused() }

// unused returns how many never were granted.
func (f *freeIDs) unused() int { return int(f.last) + 1 - int(f.next) }

// give gives n ids from first on back.
func (f *freeIDs) give(first lane.ID, n int) {
	for id := int(first); id < int(first)+n; id++ {
		for id/64 >= len(f.given) {
			f.given = append(f.given, 0)
		}
		f.given[id/64] |= 1 << (id % 64)
	}
	f.count += n
}

// take takes ids that follow one another, a power of two of them and at most n; none if there are
// none. It takes what was given back before what never was granted.
func (f *freeIDs) take(n int) (first lane.ID, count int) {
	if f.count == 0 {
		first, count = f.next, powerOfTwo(min(n, f.unused()))
		f.next += lane.ID(count)
		return first, count
	}
	at, run := f.run(n)
	count = powerOfTwo(min(n, run))
	for id := at; id < at+count; id++ {
		f.given[id/64] &^= 1 << (id % 64)
	}
	f.count -= count
	return lane.ID(at), count
}

// run returns the first run of n ids that were given back, or else the longest.
func (f *freeIDs) run(n int) (at, length int) {
	for id := f.from(0, 0); id < 64*len(f.given); {
		end := f.from(id, ^uint64(0))
		if end-id > length {
			at, length = id, end-id
		}
		if length >= n {
			break
		}
		id = f.from(end, 0)
	}
	return at, length
}

// from returns the first id from id on that was given back or, if invert is all ones, that was not.
func (f *freeIDs) from(id int, invert uint64) int {
	for ; id < 64*len(f.given); id = (id/64 + 1) * 64 {
		if w := (f.given[id/64] ^ invert) >> (id % 64); w != 0 {
			return id + bits.TrailingZeros64(w)
		}
	}
	return id
}

// powerOfTwo returns the largest that is at most n, 0 if n is not positive.
func powerOfTwo(n int) int {
	if n <= 0 {
		return 0
	}
	return 1 << (bits.Len(uint(n)) - 1)
}
