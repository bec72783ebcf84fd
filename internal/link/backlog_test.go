package link

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/link/hello"
)

// fakeShare is a lane as the backlog sees it, with a dialer that keeps to the rules.
type fakeShare struct {
	share
	places  int // at the dialer
	dials   int // that wait there
	told    int // places that it has asked for
	waiting int // streams that nobody has accepted
	deaf    bool
}

// deliver has a lane do what the backlog says, and its dialer what the lane says.
func (f *fakeShare) deliver(b *backlog) {
	o := b.do(&f.share)
	grant, recall := o.grant, o.recall
	if f.gone || f.deaf {
		return
	}
	b.granted(&f.share, grant)
	f.places += grant
	f.told = max(f.told-grant, 0)
	for f.dials > 0 && f.places > 0 {
		f.open(b)
	}
	for ; recall > 0 && f.places > 0; recall-- {
		f.places--
		f.ids++
		b.back(&f.share)
	}
}

// lackPorts has a lane get no port for what it is to grant, and returns for how many dials.
func (f *fakeShare) lackPorts(b *backlog) int {
	o := f.order
	f.order = allotment{recall: o.recall}
	f.ids += o.grant
	b.failed(&f.share, o.grant-o.wanted)
	b.noPorts(&f.share, o.wanted)
	b.wanted(&f.share, o.wanted)
	return o.wanted
}

// open takes a place.
func (f *fakeShare) open(b *backlog) {
	f.dials--
	f.places--
	f.waiting++
	b.taken(&f.share)
}

// dial opens a stream, or waits for a place.
func (f *fakeShare) dial(b *backlog) {
	f.dials++
	if f.places > 0 {
		f.open(b)
		return
	}
	if f.dials > f.told {
		b.wanted(&f.share, f.dials-f.told)
		f.told = f.dials
	}
}

func (f *fakeShare) accept(b *backlog) {
	f.waiting--
	f.ids++
	b.accepted(&f.share)
}

// fakeShares returns n lanes, each of a dialer of its own.
func fakeShares(b *backlog, n, ids int) (fs []*fakeShare) {
	for range n {
		fs = append(fs, fakeLanes(b, 1, ids)...)
	}
	return fs
}

// fakeLanes returns n lanes of another dialer.
func fakeLanes(b *backlog, n, ids int) []*fakeShare {
	fs := make([]*fakeShare, n)
	key := dialerKey{link: hello.LinkID(len(b.all) + 1)}
	for i := range fs {
		fs[i] = &fakeShare{}
		fs[i].ids = ids
		b.join(&fs[i].share, key)
	}
	return fs
}

// deliverAll has all lanes do what there is to do.
func deliverAll(b *backlog, fs []*fakeShare) {
	for b.next() != nil {
		for _, f := range fs {
			f.deliver(b)
		}
	}
}

// TestOneLaneAndTheBacklog: a small backlog can be used wholly by one lane, of a large one
// something is left, however much it wants.
func TestOneLaneAndTheBacklog(t *testing.T) {
	for size, most := range map[int]int{1: 1, 2: 2, 7: 7, 16: 15, 100: 89, 4096: 3641} {
		b := newBacklog(size, 32)
		f := fakeShares(&b, 1, 1<<14)[0]
		for range 1 << 14 {
			f.dial(&b)
		}
		deliverAll(&b, []*fakeShare{f})
		require.Equal(t, most, f.waiting, "of %d", size)
		require.Equal(t, size-most, b.left)
	}
}

// TestManyLanesAndTheBacklog: a dialer with eight lanes gets no more of the backlog than one
// with one, and keeps no more in store.
func TestManyLanesAndTheBacklog(t *testing.T) {
	for size, most := range map[int]int{1: 1, 2: 2, 7: 7, 16: 15, 100: 89, 4096: 3641} {
		b := newBacklog(size, 32)
		fs := fakeLanes(&b, 8, 1<<14)
		for i := range 1 << 14 {
			fs[i%8].dial(&b)
		}
		deliverAll(&b, fs)
		waiting := 0
		for _, f := range fs {
			waiting += f.waiting
		}
		require.Equal(t, most, waiting, "of %d", size)
		for _, f := range fs {
			b.leave(&f.share)
			for f.waiting > 0 {
				f.accept(&b)
			}
		}
		require.Equal(t, size, b.left)
		require.Empty(t, b.dialers)
	}
	b := newBacklog(4096, 32)
	fs := fakeLanes(&b, 8, 1<<14)
	for _, f := range fs {
		b.wanted(&f.share, 1<<14) // and opens nothing
	}
	deliverAll(&b, fs)
	require.Equal(t, 32, b.stored)
}

// TestStoreGrows: a dialer whose dials wait again and again has more in store, until they wait no
// more; one that opens as many one after the other does not.
func TestStoreGrows(t *testing.T) {
	const at = 60 // dials at once: a store is filled up when half of it is used
	b := newBacklog(4096, 16)
	fs := fakeShares(&b, 2, 1<<13)
	many, one := fs[0], fs[1]
	asked := 0
	for range 200 {
		for range at {
			many.dial(&b)
			one.dial(&b)
			one.deliver(&b)
		}
		if many.told > 0 {
			asked++
		}
		for many.waiting+many.dials > 0 {
			if deliverAll(&b, fs); many.waiting > 0 {
				many.accept(&b)
			}
		}
		for one.waiting > 0 {
			one.accept(&b)
		}
		deliverAll(&b, fs)
	}
	require.GreaterOrEqual(t, many.stored, at)
	require.Less(t, asked, 10)
	for range 20 * at {
		many.dial(&b)
	}
	for many.waiting+many.dials > 0 {
		if deliverAll(&b, fs); many.waiting > 0 {
			many.accept(&b)
		}
	}
	require.Greater(t, many.window, storeGrowth*b.store)
	require.LessOrEqual(t, many.stored, storeGrowth*b.store)
	require.LessOrEqual(t, one.stored, b.store)

	other := fakeLanes(&b, 1, 1<<13)
	for range 4096 { // more than there is, so others give back
		other[0].dial(&b)
		deliverAll(&b, append(other, fs...))
	}
	require.Zero(t, many.stored)
	require.Equal(t, b.store, many.window)
}

// TestStoresLeaveHalf: however many dialers open many at once, one after the other, they leave half of
// the backlog to dials, and most of the ports of one client address; those that come next need ask
// nobody back.
func TestStoresLeaveHalf(t *testing.T) {
	for size, dialers := range map[int]int{4096: 20, 65535: 60} {
		b := newBacklog(size, 32)
		var fs []*fakeShare
		for range dialers {
			f := fakeLanes(&b, 1, 1<<13)[0]
			fs = append(fs, f)
			for range 1000 {
				f.dial(&b)
			}
			for f.waiting+f.dials > 0 {
				if deliverAll(&b, fs); f.waiting > 0 {
					f.accept(&b)
				}
			}
			deliverAll(&b, fs)
			require.Zero(t, b.asked)
		}
		require.Greater(t, fs[0].stored, b.store)
		ungrown := (dialers + storeGrowth) * b.store // and the last that has grown
		require.GreaterOrEqual(t, b.left, size/2-ungrown, "of %d", size)
		require.LessOrEqual(t, b.stored, mostGrown+ungrown)
	}
}

// TestWaitingLaneAsks: a lane that may use more, as it has used places, has others asked for as much at
// once, though it waits already.
func TestWaitingLaneAsks(t *testing.T) {
	b := newBacklog(4096, 32)
	idle, busy := fakeShares(&b, 16, 1000), fakeShares(&b, 1, 4000)[0]
	for _, f := range idle {
		b.grant(&f.share, 250)
		f.deliver(&b)
		f.deaf = true
	}
	for range 2000 {
		busy.dial(&b)
	}
	for busy.order.grant > 0 {
		busy.deliver(&b)
	}
	require.Greater(t, busy.wish(), 32)
	require.GreaterOrEqual(t, b.asked+b.left, b.most(&busy.share, busy.wish(), b.left+b.stored+b.asked))
}

// TestDialersTakeTurns: of two dialers that want more than there is each gets as much, though
// one has eight lanes, and each of those as much.
func TestDialersTakeTurns(t *testing.T) {
	b := newBacklog(8, 2)
	fs := append(fakeLanes(&b, 8, 1000), fakeShares(&b, 1, 1000)...)
	for range 900 {
		for _, f := range fs {
			f.dial(&b)
		}
	}
	accepted, queued, queue := make([]int, len(fs)), make([]int, len(fs)), []int(nil)
	for range 1000 { // they are accepted in the order in which they were opened
		deliverAll(&b, fs)
		for i, f := range fs {
			for ; queued[i] < accepted[i]+f.waiting; queued[i]++ {
				queue = append(queue, i)
			}
		}
		fs[queue[0]].accept(&b)
		accepted[queue[0]]++
		queue = queue[1:]
	}
	all := 0
	for _, n := range accepted[:8] {
		require.InDelta(t, accepted[0], n, 4)
		all += n
	}
	require.InDelta(t, accepted[8], all, 20)
}

// TestGreedyLanes: lanes that want all and open nothing hold nobody up, also such that do not
// answer when they are asked for places back.
func TestGreedyLanes(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		b := newBacklog(4096, 32)
		fs := fakeShares(&b, 20, 1<<14)
		for _, f := range fs[:10] {
			b.wanted(&f.share, 1<<14)
			f.deliver(&b)
			f.deaf = deaf
		}
		for _, f := range fs[10:] {
			for range 4 {
				f.dial(&b)
				deliverAll(&b, fs)
			}
			require.Equal(t, 4, f.waiting, "deaf: %v", deaf)
		}
	}
}

// TestHungryLaneGivesBack: a lane whose own dials want more is no less asked for what it has
// in store.
func TestHungryLaneGivesBack(t *testing.T) {
	b := newBacklog(7, 4)
	fs := fakeShares(&b, 2, 100)
	b.wanted(&fs[0].share, 100) // and opens nothing
	deliverAll(&b, fs)
	require.Equal(t, 4, fs[0].stored)
	require.Positive(t, fs[0].want)
	for range 5 {
		fs[1].dial(&b)
		deliverAll(&b, fs)
	}
	require.Equal(t, 5, fs[1].waiting)
}

// TestNothingIsAskedBackForALaneThatHasGone: what the dialer of a lane that goes away still wants is no
// reason to take places from others.
func TestNothingIsAskedBackForALaneThatHasGone(t *testing.T) {
	b := newBacklog(3, 3)
	fs := fakeShares(&b, 2, 10)
	b.wanted(&fs[0].share, 3)
	deliverAll(&b, fs)
	require.Equal(t, 3, fs[0].stored)
	b.wanted(&fs[1].share, 1)
	require.Equal(t, 1, b.asked)
	b.leave(&fs[1].share)
	b.wanted(&fs[1].share, 2)
	require.Equal(t, 1, b.asked)
	require.Equal(t, allotment{recall: 1}, fs[0].order)
}

// TestStoresAreNotAskedBackForStores: lanes without dials that wait do not take places from
// each other, and all can keep some.
func TestStoresAreNotAskedBackForStores(t *testing.T) {
	b := newBacklog(100, 32)
	fs := fakeShares(&b, 30, 100)
	for _, f := range fs {
		f.dial(&b)
		deliverAll(&b, fs)
		f.accept(&b)
		deliverAll(&b, fs)
	}
	for range 100 {
		f := fs[rand.IntN(len(fs))]
		f.dial(&b)
		grant, recall := 0, 0
		for _, o := range fs {
			grant += o.order.grant
			recall += o.order.recall
		}
		deliverAll(&b, fs)
		f.accept(&b)
		require.Zero(t, recall, "%d granted", grant)
	}
}

// TestMemoryForPlaces: places for which there is no memory are not asked for again at once,
// and not forgotten.
func TestMemoryForPlaces(t *testing.T) {
	b := newBacklog(10, 2)
	f := fakeShares(&b, 1, 100)[0]
	f.dial(&b)
	o := b.do(&f.share)
	require.Positive(t, o.grant)
	require.Equal(t, 1, o.wanted)
	b.denied(&f.share, o.grant)
	b.wanted(&f.share, o.wanted)
	require.Equal(t, 10, b.left)
	b.released(&f.share)
	require.Nil(t, b.next())
	b.retry(&f.share)
	deliverAll(&b, []*fakeShare{f})
	require.Equal(t, 1, f.waiting)
}

// TestStoreDenied: a dial that comes while places for the store are coming is tried by itself when those
// do not come.
func TestStoreDenied(t *testing.T) {
	b := newBacklog(4096, 8)
	f := fakeShares(&b, 1, 100)[0]
	f.dial(&b)
	f.deliver(&b)
	o := b.do(&f.share)
	require.Equal(t, allotment{grant: 8}, o)
	f.dial(&b)
	require.Zero(t, b.do(&f.share))
	b.storeDenied(&f.share, o.grant)
	require.Equal(t, allotment{grant: 1, wanted: 1}, f.order)
}

// TestPortsAreAskedBack: dials that lack a port of their client's address have it from the stores of others
// from there, which get no more before the dials have theirs. Those from elsewhere keep what they have.
func TestPortsAreAskedBack(t *testing.T) {
	b := newBacklog(4096, 8)
	from := func(host string, link hello.LinkID) *fakeShare {
		f := &fakeShare{}
		f.ids = 100
		b.join(&f.share, dialerKey{netip.MustParseAddr(host), link})
		return f
	}
	here, also, elsewhere := from("10.0.0.1", 1), from("10.0.0.1", 2), from("10.0.0.2", 1)
	for _, f := range []*fakeShare{also, elsewhere} {
		f.dial(&b)
		deliverAll(&b, []*fakeShare{f})
		require.Greater(t, f.stored, 5)
	}
	b.grant(&elsewhere.share, 10) // it would be asked first
	elsewhere.deliver(&b)
	for range 5 {
		here.dial(&b)
	}
	require.Equal(t, 5, here.lackPorts(&b))
	require.Equal(t, 5, also.order.recall)
	require.Zero(t, elsewhere.order.recall)
	b.retry(&here.share) // in vain: no more are asked for than lack
	require.Equal(t, 5, here.lackPorts(&b))
	require.Equal(t, 5, also.order.recall)

	had := also.stored
	also.deliver(&b)
	require.Equal(t, had-5, also.stored)
	require.Equal(t, 5, here.order.grant, "it is not tried again")
	also.dial(&b)
	also.dial(&b)
	require.Zero(t, also.order.grant, "the store takes the ports that have come back")
	here.deliver(&b)
	require.Equal(t, 5, here.waiting)
	also.dial(&b)
	require.Positive(t, also.order.grant, "the store stays empty")

	also.deliver(&b)

	here.dial(&b)
	o := b.do(&here.share) // it begins with that
	here.dial(&b)
	b.noPorts(&here.share, o.grant)
	b.wanted(&here.share, o.grant)
	b.granted(&here.share, here.coming)
	require.NotEmpty(t, b.portless, "what was found later ends the shortage of the others")
	here.ids = 0
	b.retry(&here.share)
	require.Empty(t, b.portless, "stores stay empty for what cannot be tried")
	here.ids = 100
	b.released(&here.share)
	require.Positive(t, here.lackPorts(&b))
	require.NotEmpty(t, b.portless)
	b.leave(&here.share)
	require.Empty(t, b.portless)
}

// TestBacklogAtRandom lets lanes dial, leave and come while a server accepts now and then.
// The books are right after each step, and at last each dial has its place.
func TestBacklogAtRandom(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := newBacklog(1+r.IntN(40), 1+r.IntN(8))
		var fs []*fakeShare
		for range 1 + r.IntN(4) {
			fs = append(fs, fakeLanes(&b, 1+r.IntN(3), 1+r.IntN(30))...)
		}
		check := func() {
			held, stored, asked := 0, 0, 0
			of := map[*dialer]int{}
			for _, f := range fs {
				of[f.dialer] += f.coming + f.stored + f.waiting
				require.GreaterOrEqual(t, f.stored, f.asked)
				stored += f.stored - f.asked
				asked += f.asked
			}
			for d, n := range of {
				require.Equal(t, n, d.held, "seed %d", seed)
				require.Equal(t, d.lanes+d.held > 0, b.dialers[d.key] == d, "seed %d", seed)
				held += d.held
			}
			require.Equal(t, b.size, b.left+held, "seed %d", seed)
			late := 0 // places that were taken back, and are held all the same
			for _, f := range fs {
				if f.gone {
					late += f.waiting
				}
			}
			require.GreaterOrEqual(t, b.left, -late)
			require.Equal(t, fmt.Sprint(stored, asked), fmt.Sprint(b.stored, b.asked), "seed %d", seed)
		}
		for range 300 {
			f := fs[r.IntN(len(fs))]
			switch n := r.IntN(20); {
			case f.gone && n < 4 && f.places > 0: // its dialer has not heard so yet
				f.dials++
				f.open(&b)
			case f.gone && n < 8 && f.waiting > 0:
				f.accept(&b)
			case f.gone && n == 8: // another lane of the dialer
				next := &fakeShare{}
				next.ids = 1 + r.IntN(30)
				b.join(&next.share, f.dialer.key)
				fs = append(fs, next)
			case f.gone:
			case n < 8:
				f.dial(&b)
			case n < 14:
				f.deliver(&b)
			case n == 14 && f.dials > 0:
				f.dials-- // one has left
			case n == 15 && r.IntN(10) == 0:
				b.leave(&f.share)
				f.dials = 0
			case n == 16 && f.order.wanted > 0:
				f.lackPorts(&b)
			case n == 17:
				b.retry(&f.share)
			case f.waiting > 0:
				f.accept(&b)
			}
			check()
		}
		for _, f := range fs {
			b.retry(&f.share)
		}
		for some := true; some; {
			some = false
			deliverAll(&b, fs)
			for _, f := range fs {
				for f.waiting > 0 {
					f.accept(&b)
					some = true
				}
				f.deliver(&b)
				some = some || f.order != (allotment{})
			}
			check()
		}
		for _, f := range fs {
			require.Zero(t, f.dials, "seed %d: a dial waits for ever", seed)
		}
		require.Empty(t, b.portless, "seed %d", seed)
	}
}

// TestResetsWithholdPlaces: a dialer with too many streams that are reset and wait to be accepted gets
// no places on any of its lanes, until some are accepted. Others do.
func TestResetsWithholdPlaces(t *testing.T) {
	b := newBacklog(400, 8)
	fs := append(fakeLanes(&b, 2, 1000), fakeLanes(&b, 1, 1000)...)
	bad, badly, good := fs[0], fs[1], fs[2]
	resets := 0
	for n := 0; bad.dials == 0; n++ {
		require.Less(t, n, b.size)
		bad.dial(&b)
		deliverAll(&b, fs)
		for ; resets < bad.waiting; resets++ {
			b.reset(&bad.share)
		}
	}
	require.GreaterOrEqual(t, resets, b.maxResets)
	require.Less(t, resets, b.maxResets+2*b.store, "what it had in store")
	for badly.dials == 0 {
		badly.dial(&b)
		deliverAll(&b, fs)
	}
	require.LessOrEqual(t, badly.waiting, b.store, "what it had in store")
	for range 2 * b.store {
		good.dial(&b)
		deliverAll(&b, fs)
	}
	require.Zero(t, good.dials)
	for ; resets >= b.maxResets; resets-- {
		require.Equal(t, 1, bad.dials)
		require.Equal(t, 1, badly.dials)
		b.resetAccepted(&bad.share)
		bad.accept(&b)
		deliverAll(&b, fs)
	}
	require.Zero(t, bad.dials)
	require.Zero(t, badly.dials)
	for _, f := range fs {
		for f.waiting > 0 {
			f.accept(&b)
		}
		b.leave(&f.share)
	}
	require.Equal(t, b.size, b.left)
	require.Empty(t, b.dialers)
}
