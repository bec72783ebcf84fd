package link

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/rdmanet/go-rdmanet/internal/link/hello"
)

// backlog says which lane of a listener gets how many places. A place is a stream that may be
// opened without asking; the places of all lanes and the streams that nobody has accepted are
// bounded together. It has neither lock nor clock: the Listener's lock guards it.
//
// What is fair is so among dialers, however many lanes each has: a dialer is all lanes of one
// link.
//
//   - Dials that wait come before places in store. Dialers take turns, and the lanes of each.
//   - A dialer has at most so many places in store as it may keep there, an even part on each of
//     its lanes. A lane may have twice as many whenever it has used as many and dials wait all the
//     same, and it keeps up to eight times as many in store while half of the backlog is left: so one
//     that opens nothing holds little, however much it wants, and one that opens many at once need not
//     ask.
//   - No dialer gets so much that less than an eighth of what it holds is left for others. So one
//     can use a small backlog wholly, and of a large one there is something left for the
//     next dialer, however much the others want.
//   - If nothing is left for a dial that waits, other lanes are asked to give back what they have
//     in store: those first that have no dials waiting, and of them the one with the most. A lane
//     whose own dials wait is no exception.
//   - Likewise if the dialer's address has no port left, but only lanes from that address are asked,
//     and none of them gets anything in store meanwhile.
//   - A dialer that has reset too many of the streams which wait to be accepted gets no places
//     before some of those are accepted. It keeps what it has.
type backlog struct {
	size, left int
	store      int       // places that a dialer may keep in store
	maxResets  int       // streams that it may have reset and that nobody has accepted
	stored     int       // places that lanes have in store, and were not asked back
	asked      int       // asked back, and not come yet
	waiting    []*dialer // with dials that wait, in the order in which they get something
	due        []*share  // with something to be done
	all        map[*share]struct{}
	dialers    map[dialerKey]*dialer
	portless   map[netip.Addr]int // lanes from there that lack ports
}

// A dialerKey tells dialers apart.
type dialerKey struct {
	host netip.Addr
	link hello.LinkID
}

// dialer is what the backlog knows of all lanes of a link.
type dialer struct {
	key     dialerKey
	lanes   int      // that stand
	held    int      // what is coming to them or in their stores, and streams that nobody has accepted
	resets  int      // of those streams, the ones that are reset
	waiting []*share // of them, in the order in which they get something
}

const (
	// storeGrowth is how many times as many places a dialer may have in store that opens many at once.
	storeGrowth = 8
	// mostGrown is how many places there may be in store for that to be so: each holds a port of its
	// client's address.
	mostGrown = numPorts / 4
)

// reserve is the part of what a dialer holds that has to be left for others: one in so many.
const reserve = 8

// share is what the backlog knows of a lane.
type share struct {
	e       *laneEnd
	dialer  *dialer
	coming  int  // places that it is to get
	stored  int  // that it has
	asked   int  // of them, to be given back
	want    int  // its dials that wait
	ids     int  // how many more places it has ids for
	window  int  // how many places it might have in store if it was its dialer's only lane
	used    int  // places that were taken since the window became what it is
	denied  bool // there was no memory, or no port, for places
	noStore bool // nor for such that no dial waits for
	noPorts bool // dials lacked ports, and have not got them yet
	waiting bool
	gone    bool
	served  bool // it has got a place
	final   bool // no stream is opened on it any more

	order  allotment
	queued bool
}

// allotment is what is to be done for a lane.
type allotment struct {
	grant  int // places
	wanted int // of them, for dials that wait
	recall int // places to be asked back
}

// leastResets is how many streams a dialer may have reset in a small backlog.
const leastResets = 16

// newBacklog makes one in which a dialer may have reset as many streams as a quarter of all places.
func newBacklog(size, store int) backlog {
	return backlog{size: size, left: size, store: store, maxResets: max(size/4, leastResets), all: map[*share]struct{}{}, dialers: map[dialerKey]*dialer{}, portless: map[netip.Addr]int{}}
}

// join adds a lane of a dialer.
func (b *backlog) join(s *share, key dialerKey) {
	s.window = b.store
	b.all[s] = struct{}{}
	d := b.dialers[key]
	if d == nil {
		d = &dialer{key: key}
		b.dialers[key] = d
	}
	d.lanes++
	s.dialer = d
}

// forget is for a dialer that may have nothing any more.
func (b *backlog) forget(d *dialer) {
	if d.lanes == 0 && d.held == 0 {
		delete(b.dialers, d.key)
	}
}

// leave takes back what a lane has that is no more. What nobody has accepted stays held.
func (b *backlog) leave(s *share) {
	if s.gone {
		return
	}
	s.gone = true
	if _, ok := b.all[s]; !ok {
		return // it never had any
	}
	delete(b.all, s)
	b.lack(s, false)
	s.dialer.lanes--
	b.stored -= s.stored - s.asked
	b.asked -= s.asked
	b.give(s, s.coming+s.stored)
	s.coming, s.stored, s.asked, s.want, s.order = 0, 0, 0, 0, allotment{}
	b.settle()
}

// give takes n back of what s holds.
func (b *backlog) give(s *share, n int) {
	s.dialer.held -= n
	b.left += n
	b.forget(s.dialer)
}

// wanted: n dials more wait.
func (b *backlog) wanted(s *share, n int) {
	if s.gone { // its dialer has not heard so, or the worker could not make what it was to
		return
	}
	s.want = min(s.want+n, 1<<30)
	b.widen(s)
	b.settle()
	b.fill(s)
}

// granted: n places that were coming are in store.
func (b *backlog) granted(s *share, n int) {
	if s.gone {
		return
	}
	s.served = true
	b.came(s, n)
	s.stored += n
	b.stored += n
	b.settle() // they may be asked back
}

// failed: n places that were coming do not.
func (b *backlog) failed(s *share, n int) {
	if s.gone {
		return
	}
	b.came(s, n)
	b.give(s, n)
	b.settle()
}

// came records what has become of n places that were coming. If no more are, and none were denied, the
// lane has the ports that it has lacked.
func (b *backlog) came(s *share, n int) {
	if s.coming -= n; s.coming == 0 && !s.denied {
		b.lack(s, false)
	}
}

// denied: likewise, for lack of memory. The lane gets none before retry.
func (b *backlog) denied(s *share, n int) {
	s.denied = true
	b.failed(s, n)
}

// storeDenied: likewise, for what no dial waits for. Dials that have come meanwhile counted on those places.
func (b *backlog) storeDenied(s *share, n int) {
	s.noStore = true
	b.failed(s, n)
	b.fill(s)
}

// noPorts: likewise, for dials and for lack of ports. Others from the same address give theirs back.
func (b *backlog) noPorts(s *share, n int) {
	if s.gone {
		return
	}
	b.denied(s, n)
	b.lack(s, true)
	host := s.dialer.key.host
	b.askBack(s, n-b.askedOf(host), host)
}

// lack records whether a lane lacks ports.
func (b *backlog) lack(s *share, lacks bool) {
	if s.noPorts == lacks {
		return
	}
	s.noPorts = lacks
	host := s.dialer.key.host
	if lacks {
		b.portless[host]++
	} else if b.portless[host]--; b.portless[host] == 0 {
		delete(b.portless, host)
	}
}

// askedOf is how many places the lanes from host are asked for.
func (b *backlog) askedOf(host netip.Addr) (n int) {
	for s := range b.all {
		if s.dialer.key.host == host {
			n += s.asked
		}
	}
	return n
}

// portsBack has lanes from host tried again that lack ports, when all have come that were asked for.
func (b *backlog) portsBack(host netip.Addr) {
	if b.portless[host] == 0 || b.askedOf(host) > 0 {
		return
	}
	for s := range b.all {
		if s.noPorts && s.denied && s.dialer.key.host == host {
			b.retry(s)
		}
	}
}

// retry: there may be memory or ports again. It lacks ports until it has got some, lest a store gets
// those that have come back for it.
func (b *backlog) retry(s *share) {
	s.denied, s.noStore = false, false
	b.settle()
	b.fill(s)
	b.came(s, 0)
}

// taken: a stream was opened with a place.
func (b *backlog) taken(s *share) {
	if s.gone {
		b.takenLate(s)
		return
	}
	s.used++
	b.widen(s)
	b.unstore(s)
	if s.waiting { // it may use more now
		b.settle()
	}
	b.fill(s)
}

// takenLate is taken of a lane that goes away, whose dialer had not heard so: its places were taken back, and
// this one is held after all. There may be fewer than none left then.
func (b *backlog) takenLate(s *share) {
	key := s.dialer.key
	if d := b.dialers[key]; d != nil { // perhaps one that has come since
		s.dialer = d
	} else {
		b.dialers[key] = s.dialer
	}
	s.dialer.held++
	b.left--
}

// widen lets a lane have more in store whose dials wait though it has used what it had.
func (b *backlog) widen(s *share) {
	if s.want > 0 && s.used >= s.dialer.part(s.window) {
		s.window, s.used = min(2*s.window, b.size), 0
	}
}

// narrow has a lane keep no more in store than any.
func (b *backlog) narrow(s *share) { s.window, s.used = b.store, 0 }

// back: a place was given back.
func (b *backlog) back(s *share) {
	if !s.gone {
		b.give(s, 1)
		b.unstore(s)
		b.settle()
		b.fill(s)
	}
}

// unstore records that a place is not in store any more. It counts as one that was asked back, if any was.
func (b *backlog) unstore(s *share) {
	s.stored--
	if s.asked > 0 {
		s.asked--
		b.asked--
		b.settle() // another may have to be asked
		b.portsBack(s.dialer.key.host)
	} else {
		b.stored--
	}
}

// accepted: a stream of the lane is no concern of the backlog any more.
func (b *backlog) accepted(s *share) {
	b.give(s, 1)
	b.settle()
	if !s.gone {
		b.fill(s)
	}
}

// reset: a stream that waits to be accepted was reset. Who does so needs no large store.
func (b *backlog) reset(s *share) {
	s.dialer.resets++
	b.narrow(s)
}

// resetAccepted: such a stream does not wait any more. accepted is to follow.
func (b *backlog) resetAccepted(s *share) { s.dialer.resets-- }

// released: the lane has ids again.
func (b *backlog) released(s *share) {
	b.settle()
	b.fill(s)
}

// most is how many places of n the lane may get, if there are so many free.
func (b *backlog) most(s *share, n, free int) int {
	if s.dialer.resets >= b.maxResets {
		return 0
	}
	// The largest k with (held+k)/reserve <= free-k.
	return max(min(n, free, (reserve*(free+1)-1-s.dialer.held)/(reserve+1)), 0)
}

func (b *backlog) grant(s *share, n int) {
	if n <= 0 {
		return
	}
	b.left -= n
	s.dialer.held += n
	s.coming += n
	s.ids -= n
	s.order.grant += n
	s.order.wanted += min(s.want, n)
	s.want = max(s.want-n, 0)
	b.enqueue(s)
}

func (b *backlog) enqueue(s *share) {
	if !s.queued {
		s.queued = true
		b.due = append(b.due, s)
	}
}

// waits reports whether the lane has dials that wait and could be helped.
func (s *share) waits() bool { return s.wish() > 0 && !s.denied && !s.gone }

// wish is how many places it could use now.
func (s *share) wish() int { return min(s.want, s.ids, s.dialer.part(s.window)-s.coming-s.stored) }

// part is one lane's of n, one at least.
func (d *dialer) part(n int) int { return max(n/max(d.lanes, 1), 1) }

// settle gives what is left to the dials that wait, and asks for more if that is not enough.
func (b *backlog) settle() {
	for some := true; some && b.left > 0; {
		some = false
		for range len(b.waiting) {
			if b.left == 0 {
				break // who is next then has the next turn
			}
			d := pop(&b.waiting)
			turn := max(b.left/(len(b.waiting)+1), 1)
			for range len(d.waiting) {
				if turn == 0 {
					break
				}
				s := pop(&d.waiting)
				if s.waits() {
					n := b.most(s, min(s.wish(), max(turn/(len(d.waiting)+1), 1)), b.left)
					b.grant(s, n)
					turn -= n
					some = some || n > 0
				}
				if s.waiting = s.waits(); s.waiting {
					d.waiting = append(d.waiting, s)
				}
			}
			if len(d.waiting) > 0 {
				b.waiting = append(b.waiting, d)
			}
		}
	}
	if len(b.waiting) > 0 && b.stored > 0 {
		b.recall()
	}
}

// recall asks lanes to give back what they have in store, for the dials that wait.
func (b *backlog) recall() {
	all := 0 // that they could use
	for _, d := range b.waiting {
		held, reserved := d.held, 0
		for _, s := range d.waiting {
			others := b.stored + b.asked - s.stored // of the others
			n := b.most(s, s.wish(), b.left+others)
			if n == 0 {
				continue // however much comes back
			}
			held += n
			all += n + held/reserve - reserved
			reserved = held / reserve
			b.askBack(s, all-b.left-b.asked, netip.Addr{})
		}
	}
}

// askBack asks lanes for n places that s is to get: those from host, or all if it is the zero Addr.
func (b *backlog) askBack(s *share, n int, host netip.Addr) {
	if n <= 0 {
		return
	}
	from := make([]*share, 0, len(b.all))
	for o := range b.all {
		if o != s && o.stored > o.asked && (host == netip.Addr{} || host == o.dialer.key.host) {
			from = append(from, o)
		}
	}
	slices.SortFunc(from, func(x, y *share) int {
		if x.waiting != y.waiting {
			if x.waiting {
				return 1
			}
			return -1
		}
		return cmp.Compare(y.stored-y.asked, x.stored-x.asked)
	})
	for _, o := range from {
		k := min(n, o.stored-o.asked)
		o.asked += k
		b.asked += k
		b.stored -= k
		o.order.recall += k
		b.narrow(o)
		b.enqueue(o)
		if n -= k; n == 0 {
			return
		}
	}
}

// fill gives a lane something in store when it has little, out of what is left when dials have
// got what they may.
func (b *backlog) fill(s *share) {
	if s.gone {
		return
	}
	if s.waits() {
		if !s.waiting {
			s.waiting = true
			if s.dialer.waiting = append(s.dialer.waiting, s); len(s.dialer.waiting) == 1 {
				b.waiting = append(b.waiting, s.dialer)
			}
			b.settle()
		}
		return
	}
	// Half of the backlog is for dials, so that asking back is rare.
	most := b.store
	if b.left > b.size/2 && b.stored < mostGrown {
		most = min(s.window, storeGrowth*b.store)
	}
	want := s.dialer.part(min(most, max(b.size/(2*len(b.dialers)), 1)))
	have := s.coming + s.stored
	if s.denied || s.noStore || b.asked > 0 || have > want/2 || b.portless[s.dialer.key.host] > 0 {
		return
	}
	b.grant(s, b.most(s, min(want-have, s.ids), b.left))
}

// do returns what is to be done for a lane, once.
func (b *backlog) do(s *share) allotment {
	o := s.order
	s.order = allotment{}
	return o
}

// next takes the next lane for which something is to be done.
func (b *backlog) next() *share {
	for len(b.due) > 0 {
		s := pop(&b.due)
		s.queued = false
		if s.order != (allotment{}) {
			return s
		}
	}
	return nil
}
