package faulty

import (
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// The device below gathers what a request sends when it is posted. One that is asynchronous may do so until
// the request completes, and again where something was lost: what memory held at the post it has to hold
// until then. The difference would reach a peer only now and then, so that it is looked for here.

// gathers is how long an asynchronous device takes for each request: who looks finds some of those that he
// has posted completed, and others not.
const gathers = 10 * time.Microsecond

// A source is memory that a request reads.
type source struct {
	mr    *mr
	bytes []byte
	addr  uint64 // as the SGE has it
	sum   uint64 // at the post
}

// A request is one of the send queue that its user has not seen to be completed.
type request struct {
	id       uint64
	opcode   verbs.WROpcode
	signaled bool
	sources  int
}

// sources are those of the requests of a send queue. The zero value records nothing.
type sources struct {
	records bool
	answers bool // a completion says that TCP has the request, and only that of a READ that the peer has
	all     bool // every request is signalled
	seed    maphash.Seed

	mu       sync.Mutex // guards what follows
	requests []request  // in order
	reads    []source   // of the requests, in order
	complete int        // how many of the requests wait for an answer only
}

// init has s record what is posted.
func (s *sources) init(sigAll, answers bool) {
	s.records, s.all, s.answers, s.seed = true, sigAll, answers, maphash.MakeSeed()
}

// add records requests that are about to be posted. Nobody else posts meanwhile.
func (s *sources) add(wrs []verbs.SendWR, keys *keys) {
	if !s.records {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range wrs {
		wr := &wrs[i]
		r := request{id: wr.WRID, opcode: wr.Opcode, signaled: s.all || wr.Flags&verbs.SendSignaled != 0}
		if readsSources(wr) {
			for _, sge := range wr.SGList {
				if m, b := keys.find(sge); len(b) > 0 { // the device refuses any other
					s.reads = append(s.reads, source{m, b, sge.Addr, maphash.Bytes(s.seed, b)})
					r.sources++
				}
			}
		}
		s.requests = append(s.requests, r)
	}
}

// readsSources reports whether a request may read its SGEs from the post on. One with a fence waits for
// what READs before it bring.
func readsSources(wr *verbs.SendWR) bool {
	switch wr.Opcode {
	case verbs.WRSend, verbs.WRSendWithImm, verbs.WRSendWithInv, verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm:
		return wr.Flags&(verbs.SendInline|verbs.SendFence) == 0
	}
	return false
}

// takeBack forgets the last n requests, which were not posted.
func (s *sources) takeBack(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; n > 0 && len(s.requests) > 0; n-- {
		last := len(s.requests) - 1
		s.reads = s.reads[:len(s.reads)-s.requests[last].sources]
		s.requests = s.requests[:last]
	}
}

// completed takes in that the user is about to see the success of the signalled request with the id, and
// returns an error if memory has changed that it, or one before it, has read.
func (s *sources) completed(id uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.requests[s.complete:], func(r request) bool { return r.signaled })
	if i < 0 || s.requests[s.complete+i].id != id { // it was posted before a failure, behind which nothing is known
		s.forget()
		return nil
	}
	s.complete += i + 1
	done := s.requests[:s.complete]
	read := 0
	var changed error
	for i := range done {
		for range done[i].sources {
			if b := &s.reads[read]; changed == nil && maphash.Bytes(s.seed, b.bytes) != b.sum {
				changed = fmt.Errorf("request %#x, %s: its %d bytes at %#x have changed before it has completed",
					done[i].id, done[i].opcode, len(b.bytes), b.addr)
			}
			read++
		}
	}
	if s.answers && changed == nil && !answered(done[len(done)-1].opcode) {
		return nil // they are looked at again
	}
	s.requests = slices.Delete(s.requests, 0, s.complete)
	s.reads = slices.Delete(s.reads, 0, read)
	s.complete = 0
	return changed
}

// answered reports whether the completion of a request is always an answer of the peer's device.
func answered(op verbs.WROpcode) bool {
	switch op {
	case verbs.WRRDMARead, verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd, verbs.WRAtomicWrite:
		return true
	}
	return false
}

// closed takes in that an MR is closed, whose memory may be gone from now on, and returns an error if a
// request reads it that has not completed.
func (s *sources) closed(m *mr) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	read := 0
	for _, r := range s.requests {
		for range r.sources {
			if s.reads[read].mr == m {
				s.forget()
				return fmt.Errorf("request %#x, %s: the MR of its source was closed before it has completed", r.id, r.opcode)
			}
			read++
		}
	}
	return nil
}

// drop is for a QP of which no request is carried out any more.
func (s *sources) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget()
}

// forget is drop for who holds mu.
func (s *sources) forget() {
	clear(s.reads)
	s.requests, s.reads, s.complete = s.requests[:0], s.reads[:0], 0
}
