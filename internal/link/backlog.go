package link

import (
	"cmp"
	"slices"
)

// backlog says which lane of a listener gets how many places. A place is a stream that may be
// opened without asking; the places of all lanes and the streams that nobody has accepted are
// bounded together. It has neither lock nor clock: the Listener's lock guards it.
//
//   - Dials that wait come before places in store, and lanes take turns.
//   - A lane has at most so many places in store as it may keep there, and twice as many whenever it
//     has used them all: so one that opens nothing holds little, however much it wants.
//   - No lane gets so much that less than an eighth of what it holds is left for others. So one
//     lane can use a small backlog wholly, and of a large one there is something left for the
//     next dialer, however much the others want.
//   - If nothing is left for a dial that waits, other lanes are asked to give back what they have
//     in store: those first that have no dials waiting, and of them the one with the most. A lane
//     whose own dials wait is no exception.
type backlog struct {
	size, left int
	store      int      // places that a lane may keep in store
	stored     int      // places that lanes have in store, and were not asked back
	asked      int      // asked back, and not come yet
	hungry     []*share // with dials that wait, in the order in which they get something
	due        []*share // with something to be done
	all        map[*share]struct{}
}

// reserve is the part of what a lane holds that has to be left for others: one in so many.
const reserve = 8

// share is what the backlog knows of a lane.
type share struct {
	e       *laneEnd
	held    int  // all that follow, and streams of it that nobody has accepted
	coming  int  // places that it is to get
	stored  int  // that it has
	asked   int  // of them, to be given back
	want    int  // its dials that wait
	ids     int  // how many more places it has ids for
	window  int  // how many places it may have in store
	denied  bool // there was no memory for places
	noStore bool // nor for such that no dial waits for
	hungry  bool
	gone    bool

	order allotment
	isDue bool
}

// allotment is what is to be done for a lane.
type allotment struct {
	grant  int // places
	wanted int // of them, for dials that wait
	recall int // places to be asked back
}

func newBacklog(size, store int) backlog {
	return backlog{size: size, left: size, store: store, all: map[*share]struct{}{}}
}

func (b *backlog) join(s *share) {
	s.window = b.store
	b.all[s] = struct{}{}
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
	b.stored -= s.stored - s.asked
	b.asked -= s.asked
	b.give(s, s.coming+s.stored)
	s.coming, s.stored, s.asked, s.want, s.order = 0, 0, 0, 0, allotment{}
	b.settle()
}

// give takes n back of what s holds.
func (b *backlog) give(s *share, n int) {
	s.held -= n
	b.left += n
}

// wanted: n dials more wait.
func (b *backlog) wanted(s *share, n int) {
	s.want = min(s.want+n, 1<<30)
	b.settle()
	b.fill(s)
}

// granted: n places that were coming are in store.
func (b *backlog) granted(s *share, n int) {
	if s.gone {
		return
	}
	s.coming -= n
	s.stored += n
	b.stored += n
	b.settle() // they may be asked back
}

// failed: n places that were coming do not.
func (b *backlog) failed(s *share, n int) {
	if s.gone {
		return
	}
	s.coming -= n
	b.give(s, n)
	b.settle()
}

// denied: likewise, for want of memory. The lane gets none before retry.
func (b *backlog) denied(s *share, n int) {
	s.denied = true
	b.failed(s, n)
}

func (b *backlog) retry(s *share) {
	s.denied, s.noStore = false, false
	b.settle()
	b.fill(s)
}

// taken: a stream was opened with a place.
func (b *backlog) taken(s *share) {
	if !s.gone {
		b.left1(s)
		b.fill(s)
	}
}

// back: a place was given back.
func (b *backlog) back(s *share) {
	if !s.gone {
		b.give(s, 1)
		b.left1(s)
		b.settle()
		b.fill(s)
	}
}

// left1: a place is not in store any more. It counts as one that was asked back, if any was.
func (b *backlog) left1(s *share) {
	s.stored--
	if s.stored+s.coming == 0 && s.want > 0 {
		s.window = min(2*s.window, b.size)
	}
	if s.asked > 0 {
		s.asked--
		b.asked--
		b.settle() // another may have to be asked
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

// released: the lane has ids again.
func (b *backlog) released(s *share) {
	b.settle()
	b.fill(s)
}

// most is how many places of n the lane may get, if there are so many free.
func (b *backlog) most(s *share, n, free int) int {
	// The largest k with (held+k)/reserve <= free-k.
	return max(min(n, free, (reserve*(free+1)-1-s.held)/(reserve+1)), 0)
}

func (b *backlog) grant(s *share, n int) {
	if n <= 0 {
		return
	}
	b.left -= n
	s.held += n
	s.coming += n
	s.ids -= n
	s.order.grant += n
	s.order.wanted += min(s.want, n)
	s.want = max(s.want-n, 0)
	b.isDue(s)
}

func (b *backlog) isDue(s *share) {
	if !s.isDue {
		s.isDue = true
		b.due = append(b.due, s)
	}
}

// waits reports whether the lane has dials that wait and could be helped.
func (s *share) waits() bool { return s.wish() > 0 && !s.denied && !s.gone }

// wish is how many places it could use now.
func (s *share) wish() int { return min(s.want, s.ids, s.window-s.coming-s.stored) }

// settle gives what is left to the dials that wait, and asks for more if that is not enough.
func (b *backlog) settle() {
	for some := true; some && b.left > 0; {
		some = false
		for range len(b.hungry) {
			s := b.hungry[0]
			b.hungry = b.hungry[1:]
			if s.waits() {
				n := b.most(s, min(s.wish(), max(b.left/(len(b.hungry)+1), 1)), b.left)
				b.grant(s, n)
				some = some || n > 0
			}
			if s.hungry = s.waits(); s.hungry {
				b.hungry = append(b.hungry, s)
			}
		}
	}
	if len(b.hungry) > 0 && b.stored > 0 {
		b.recall()
	}
}

// recall asks lanes to give back what they have in store, for the dials that wait.
func (b *backlog) recall() {
	all := 0 // that they could use
	for _, s := range b.hungry {
		others := b.stored + b.asked - s.stored // of the others
		n := b.most(s, s.wish(), b.left+others)
		if n == 0 {
			continue // however much comes back
		}
		all += n + (s.held+n)/reserve
		need := all - b.left - b.asked
		if need <= 0 {
			continue
		}
		from := make([]*share, 0, len(b.all))
		for o := range b.all {
			if o != s && o.stored > o.asked {
				from = append(from, o)
			}
		}
		slices.SortFunc(from, func(x, y *share) int {
			if x.hungry != y.hungry {
				if x.hungry {
					return 1
				}
				return -1
			}
			return cmp.Compare(y.stored-y.asked, x.stored-x.asked)
		})
		for _, o := range from {
			n := min(need, o.stored-o.asked)
			o.asked += n
			b.asked += n
			b.stored -= n
			o.order.recall += n
			o.window = b.store
			b.isDue(o)
			if need -= n; need == 0 {
				break
			}
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
		if !s.hungry {
			s.hungry = true
			b.hungry = append(b.hungry, s)
			b.settle()
		}
		return
	}
	// All stores together are half of the backlog, so that asking back is rare.
	want := min(b.store, max(b.size/(2*len(b.all)), 1))
	have := s.coming + s.stored
	if s.denied || s.noStore || b.asked > 0 || have > want/2 {
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
		s := b.due[0]
		b.due = b.due[1:]
		s.isDue = false
		if s.order != (allotment{}) {
			return s
		}
	}
	return nil
}
