package rdmanet

import (
	"runtime"
	"time"
)

// A pacer keeps a reader from running close behind a writer of small messages. Such a
// reader looks so often that it finds one message at a time, and each look takes from
// the writer's processor the cache line which that is about to write: both wait for
// the line most of the time. A reader that lets some messages come together first
// takes them all at the price of one. The read lock of the Conn's lifecycle guards it.
type pacer struct {
	gap    time.Duration // how long to wait before looking; 0: not pacing
	seen   uint64        // messages received, as of the last find
	sent   uint64        // messages sent, when the streak began
	empty  bool          // everything was taken before the look that comes, or came
	misses uint8         // looks since the last find that found nothing, as far as they matter
	streak uint8         // finds in a row that were close to the one before
}

const (
	minGap = 500 * time.Nanosecond
	maxGap = 4 * time.Microsecond
	// fewMisses is how many looks may find nothing where the writer does not wait for
	// anything: many times less than a round trip takes.
	fewMisses = 8
	// paceAfter is how many finds make a stream.
	paceAfter = 16
	// A gap is right if it brings between so many messages.
	fewMessages, manyMessages = 8, 32
	// maxPaced is the mean length up to which messages are small. Writing longer ones
	// takes so long that the looks between them do not matter, but that both ends copy
	// at the same time does.
	maxPaced = 2 << 10
)

// missed takes in that a look has found nothing.
func (p *pacer) missed() {
	if p.misses <= fewMisses {
		p.misses++
	}
}

// found takes in that, of messages in all, some have arrived since everything was
// read, at one look or one by one over some, and how many bytes they brought. It says
// whether start has to decide whether that is a stream.
func (p *pacer) found(messages uint64, buffered int) (maybe bool) {
	n := messages - p.seen
	p.seen = messages
	near, small := p.misses <= fewMisses, uint64(buffered) <= n*maxPaced
	p.empty, p.misses = false, 0
	switch {
	case !small, p.gap == 0 && !near:
		p.gap, p.streak = 0, 0
	case p.gap == 0:
		p.streak++
		return p.streak == paceAfter
	case n <= 1:
		p.gap, p.streak = 0, 0
	case n < fewMessages:
		p.gap = min(2*p.gap, maxGap)
	case n > manyMessages:
		p.gap = max(p.gap/2, minGap)
	}
	return false
}

// start begins to pace a stream, which is what goes one way only: sent is how many
// messages went the other way so far. It takes another processor to write meanwhile.
func (p *pacer) start(sent uint64) {
	if sent-p.sent < paceAfter/2 && procs.Load() > 1 {
		p.gap = minGap
	}
	p.sent, p.streak = sent, 0
}

// pause lets messages come together.
func (p *pacer) pause() {
	for began := time.Now(); time.Since(began) < p.gap; {
		runtime.Gosched()
	}
}
