package shm

// publishUnfenced stores a word after everything that was stored before it. An x86
// processor keeps stores in order (Intel SDM, volume 3, 9.2.2), and the compiler does
// not move them; what follows may be done before it.
func publishUnfenced(p *uint64, v uint64) { *p = v }
