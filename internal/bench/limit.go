package bench

import (
	"runtime"
	"sync/atomic"
	"time"
)

// What the machine allows: no protocol, no sleep, no error, no peer that lies.

// lineSize keeps two words from sharing a cache line, or the pair of lines that
// the processor fetches together.
const lineSize = 128

// limitRingSize is the size of the bare ring.
const limitRingSize = 256 << 10

// bareRing is a single-producer single-consumer byte ring. Each side keeps a copy
// of the other's cursor and looks at the shared one only when the copy says that
// it must wait.
type bareRing struct {
	_         [lineSize]byte
	tail      atomic.Uint64
	_         [lineSize - 8]byte
	head      atomic.Uint64
	_         [lineSize - 8]byte
	knownHead uint64
	_         [lineSize - 8]byte
	knownTail uint64
	_         [lineSize - 8]byte
	bytes     [limitRingSize]byte
}

// write copies b into the ring.
func (r *bareRing) write(b []byte) {
	tail := r.tail.Load()
	for spins := 0; len(b) > 0; {
		free := limitRingSize - (tail - r.knownHead)
		if free == 0 {
			r.knownHead = r.head.Load()
			spins = relax(spins)
			continue
		}
		at := tail % limitRingSize
		n := copy(r.bytes[at:min(at+free, limitRingSize)], b)
		b, tail = b[n:], tail+uint64(n)
		r.tail.Store(tail)
	}
}

// read copies out of the ring what there is, up to len(b) bytes, at least one.
func (r *bareRing) read(b []byte) int {
	head := r.head.Load()
	for spins := 0; r.knownTail == head; spins = relax(spins) {
		r.knownTail = r.tail.Load()
	}
	at := head % limitRingSize
	n := copy(b, r.bytes[at:min(at+r.knownTail-head, limitRingSize)])
	r.head.Store(head + uint64(n))
	return n
}

// relax lets other goroutines run now and then, or nothing would move where there
// is one processor.
func relax(spins int) int {
	if spins++; spins%256 == 0 {
		runtime.Gosched()
	}
	return spins
}

// Ring sends n messages over the bare ring.
func Ring(m Meter, n, size int) {
	r := new(bareRing)
	message := make([]byte, size)
	taken := make(chan struct{})
	run := func(n int) {
		go func() {
			buf := make([]byte, readSize)
			for left := n * size; left > 0; {
				left -= r.read(buf)
			}
			taken <- struct{}{}
		}()
		for range n {
			r.write(message)
		}
		<-taken
	}
	run(min(n, 1<<20/size+16))
	m.ResetTimer()
	run(n)
	m.StopTimer()
}

// Memcpy copies n messages once.
func Memcpy(m Meter, n, size int) {
	message, area := make([]byte, size), make([]byte, max(limitRingSize, size))
	at := 0
	run := func(n int) {
		for range n {
			copy(area[at:], message)
			if at += size; at == len(area) {
				at = 0
			}
		}
	}
	run(min(n, 1<<20/size+16))
	m.ResetTimer()
	run(n)
	m.StopTimer()
}

// PingPong passes one cache line to and fro n times.
func PingPong(m Meter, n int) {
	var line struct {
		_    [lineSize]byte
		ping atomic.Int64
		_    [lineSize - 8]byte
		pong atomic.Int64
		_    [lineSize - 8]byte
	}
	warm := min(n, 1<<14)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := range int64(warm + n) {
			for spins := 0; line.ping.Load() <= i; {
				spins = relax(spins)
			}
			line.pong.Store(i + 1)
		}
	}()
	trip := func(i int64) {
		line.ping.Store(i)
		for spins := 0; line.pong.Load() < i; {
			spins = relax(spins)
		}
	}
	i := int64(0)
	for range warm {
		i++
		trip(i)
	}
	roundTrips.Reset()
	m.ResetTimer()
	start := time.Now()
	last := time.Duration(0)
	for range n {
		i++
		trip(i)
		now := time.Since(start)
		roundTrips.Record(now - last)
		last = now
	}
	m.StopTimer()
	<-ended
	reportRoundTrips(m)
}
