package shm

import "sync/atomic"

// publishUnfenced stores a word after everything that was stored before it. Here an
// atomic store is no more than that.
func publishUnfenced(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
