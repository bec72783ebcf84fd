package link

import (
	"slices"
	"sync"
	"time"
)

const (
	// maxBringUps is how many lanes may be coming up: from the answer to a request, which costs
	// what a lane has, to the first message on it. Further requests wait unanswered.
	maxBringUps = 64
	// A dialer that was answered and is silent gives way to one that waits when it has been so
	// for that many ticks, while others waited. A tick in which this process stood still is one.
	silentTick  = 25 * time.Millisecond
	silentTicks = 10
	// networkTicks are those of a dialer that is on its way over a network.
	networkTicks = 80
)

// bringUps are the lanes of a listener that are coming up. Who connects and says nothing must
// neither take memory without end nor keep others out.
type bringUps struct {
	mu      sync.Mutex
	taken   int
	waiting []chan struct{} // gets a token with its place, the first first
	silent  []*arrival      // that were answered, the oldest first
	leaving int             // of them, that were told to give way
	ticking bool
}

// An arrival is one lane's.
type arrival struct {
	evict    func() bool // has the lane end, unless the dialer is heard only now
	patience int
	ticks    int
	leaving  bool
	ended    bool

	answered bool  // the Listener's lock guards it
	why      error // likewise: the lane has ended before
	gaveWay  bool  // likewise: it counts as evicted, and OnEvict was not told yet
}

// begin waits for a place. Wait is to wait until the turn that it is given has a token, unless the
// dialer or the listener has left: then begin returns its error, and nobody gives way for it.
func (b *bringUps) begin(wait func(turn <-chan struct{}) error) error {
	b.mu.Lock()
	if b.taken < maxBringUps {
		b.taken++
		b.mu.Unlock()
		return nil
	}
	turn := make(chan struct{}, 1)
	b.waiting = append(b.waiting, turn)
	if !b.ticking {
		b.ticking = true
		time.AfterFunc(silentTick, b.tick)
	}
	b.mu.Unlock()
	err := wait(turn)
	if err == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiting, turn); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	} else { // it left when it had its turn
		b.release()
	}
	return err
}

// answered records that from now on the dialer is the one to say something.
func (b *bringUps) answered(u *arrival) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !u.ended {
		b.silent = append(b.silent, u)
	}
}

// end gives the place back, once: the dialer has spoken, or the lane has ended.
func (b *bringUps) end(u *arrival) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if u.ended {
		return
	}
	u.ended = true
	if u.leaving {
		b.leaving--
	}
	if i := slices.Index(b.silent, u); i >= 0 {
		b.silent = slices.Delete(b.silent, i, i+1)
	}
	b.release()
}

// release passes a place on. mu is held.
func (b *bringUps) release() {
	if len(b.waiting) == 0 {
		b.taken--
		return
	}
	b.waiting[0] <- struct{}{}
	b.waiting = slices.Delete(b.waiting, 0, 1)
}

// tick has the silent give way, the oldest first, as many as others wait.
func (b *bringUps) tick() {
	b.mu.Lock()
	var out []*arrival
	for _, u := range b.silent {
		if u.ticks++; u.ticks > u.patience && !u.leaving && b.leaving < len(b.waiting) {
			u.leaving = true
			b.leaving++
			out = append(out, u)
		}
	}
	if b.ticking = len(b.waiting) > 0; b.ticking {
		time.AfterFunc(silentTick, b.tick)
	}
	b.mu.Unlock()
	for _, u := range out {
		if !u.evict() {
			b.stays(u)
		}
	}
}

// stays records that a dialer which was told to give way was not silent.
func (b *bringUps) stays(u *arrival) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !u.ended {
		u.leaving, u.ticks = false, 0
		b.leaving--
	}
}
