package lane

import (
	"math/rand/v2"
	"testing"

	"github.com/rdmanet/go-rdmanet/ring"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func countedSlots(t testing.TB, own, depth, places int) *slots {
	s, err := newSlots(own, depth, places, 8)
	require.NoError(t, err)
	return &s
}

func TestSlotsConfig(t *testing.T) {
	for _, tt := range [][4]int{
		{15, 16, 4, 1}, {32769, 16, 4, 1}, {16, 15, 4, 1}, {16, 32769, 4, 1},
		{16, 16, 2, 1}, {16, 16, 12, 1}, {16, 16, 8192, 1}, {16, 16, 4, 0}, {16, 16, 4, 16384},
		{64, 16, 8, 1}, {16, 64, 8, 1},
	} {
		_, err := newSlots(tt[0], tt[1], tt[2], ID(tt[3]))
		require.ErrorIs(t, err, ring.ErrConfig, "%v", tt)
	}
}

// A flood on one stream stops there, its neighbours go on, and control after them.
func TestSlotsShares(t *testing.T) {
	s := countedSlots(t, 64, 64, 16)
	flood := func(id ID) (n int) {
		for s.CanData(id) {
			s.Data(id, false)
			n++
		}
		return n
	}
	assert.Equal(t, 32, flood(1), "one alone has half")
	for id := ID(2); id <= 4; id++ {
		assert.Equal(t, 8, flood(id), "each its share")
	}
	assert.Zero(t, flood(5), "data leaves the reserves alone")
	for range ControlReserve {
		require.True(t, s.CanRecord())
		s.Record()
	}
	assert.False(t, s.CanRecord())
	assert.False(t, s.CanCredit())
	assert.Equal(t, SlotsReserve, s.Free())
	require.NoError(t, s.Returned(32))
	assert.Equal(t, 8, flood(1), "what came back is counted for the stream that used it")
}

func TestSlotsPlaces(t *testing.T) {
	s := countedSlots(t, 64, 64, 16)
	for range 16 {
		require.True(t, s.CanRecord(), "a peer that owes nothing that is due may have all others")
		s.Record()
	}
	assert.False(t, s.CanRecord(), "all places are taken")
	assert.True(t, s.CanCredit())
	s.Data(1, true)
	require.NoError(t, s.Returned(1))
	assert.True(t, s.CanRecord(), "a place came back with its message")
}

// TestSlotsShareBounded: what is a stream's own is bounded where there are many slots.
func TestSlotsShareBounded(t *testing.T) {
	for depth, share := range map[int]int{24: 3, 64: 8, 511: 63, 2047: turnSlots, 4 * MaxPlaces: turnSlots} {
		s := countedSlots(t, depth, depth, MaxPlaces)
		for s.CanData(1) { // until few are free
			s.Data(1, false)
		}
		sent := 0
		for ; s.CanData(2); sent++ {
			s.Data(2, false)
		}
		assert.Equal(t, share, sent)
	}
}

func TestSlotsSolicit(t *testing.T) {
	s := countedSlots(t, 64, 64, 16)
	assert.True(t, s.Data(1, true), "the last of a burst")
	marked := 0
	for i := range 31 {
		if s.Data(1, false) {
			marked++
			assert.True(t, i%8 == 7 || i == 30, "at %d", i)
		}
	}
	assert.Equal(t, 4, marked, "one in an eighth, and before it waits")
	assert.True(t, s.Data(2, false), "slots are few")
}

// What messages in a row used up is counted together, and comes back message by message.
func TestSlotsInRuns(t *testing.T) {
	const depth = 64
	random := rand.New(rand.NewPCG(1, 2))
	s := countedSlots(t, depth, depth, depth)
	var sent []use
	for range 100_000 {
		if n := 1 + random.IntN(8); len(sent) >= n && (n > 4 || len(sent) == depth) {
			require.NoError(t, s.Returned(n))
			sent = sent[n:]
		} else if len(sent) < depth {
			u := use{stream: ID(random.IntN(3))}
			u.record = u.stream == 0 && random.IntN(2) == 0
			for range 1 + random.IntN(min(depth-len(sent), 4)) {
				s.send(u, false)
				sent = append(sent, u)
			}
		}
		want, records := make([]uint16, 3), uint32(0)
		for _, u := range sent {
			if want[u.stream]++; u.record {
				records++
			}
		}
		for id, n := range want {
			require.Equal(t, n, s.streams.At(ID(id)), "of stream %d", id)
		}
		require.Equal(t, records, s.pending)
		require.Equal(t, depth-len(sent), s.free)
		require.LessOrEqual(t, s.uses, len(sent))
	}
}

func TestSlotsLies(t *testing.T) {
	s := countedSlots(t, 16, 16, 4)
	requireViolation(t, ProtocolError{RuleReturn, 0, 1, 0}, s.Returned(1))
	s.Record()
	requireViolation(t, ProtocolError{RuleReturn, 0, 2, 1}, s.Returned(2))
	requireViolation(t, ProtocolError{RuleReturn, 0, 0, 1}, s.Returned(0))
	require.NoError(t, s.Returned(1))
	for range 16 {
		require.NoError(t, s.Arrived())
	}
	requireViolation(t, ProtocolError{RuleDepth, 0, 17, 16}, s.Arrived())
	require.ErrorIs(t, s.Reposted(17), ring.ErrConfig)
	require.ErrorIs(t, s.Reposted(-1), ring.ErrConfig)
	require.NoError(t, s.Reposted(3))
	assert.False(t, s.Due())
	require.NoError(t, s.Reposted(1))
	assert.True(t, s.Due())
	assert.False(t, s.CanData(1), "a return that is due goes first")
	assert.False(t, s.CanCredit())
	assert.Equal(t, 4, s.Return())
	require.NoError(t, s.Arrived(), "what was returned may be used again")
}

// TestSlotsExplore takes two ends every way through their slots: a return that is due
// always finds a slot, and one of the two can always go on. Ends of so few receives are
// there for the search alone.
func TestSlotsExplore(t *testing.T) {
	depths := []int{8, 9, 10, 12}
	if deep() {
		depths = append(depths, 13, 15, 16)
	}
	for _, tt := range []struct {
		name   string
		broken func(s *slots) // before what an end does
		fixed  func(s *slots) // after it
		held   int
		want   string
	}{
		{name: "as it is"},
		{name: "receives held back", held: 2},
		{name: "no reserve", broken: func(s *slots) { s.free += SlotsReserve + ControlReserve }, fixed: func(s *slots) { s.free -= SlotsReserve + ControlReserve }, want: "a return that is due finds no slot"},
		{name: "a reserve of one", broken: func(s *slots) { s.free += 3 }, fixed: func(s *slots) { s.free -= 3 }, want: "a return that is due finds no slot"},
		{name: "returns are never due", broken: func(s *slots) { s.own *= 1000 }, fixed: func(s *slots) { s.own /= 1000 }, want: "stuck"},
		{name: "too much held back", held: MinDepth, want: "stuck"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, depth := range depths {
				held := min(tt.held, depth)
				assert.Equal(t, tt.want, exploreSlots(t, depth, tt.broken, tt.fixed, max(held, 1)))
			}
		})
	}
}

// exploreSlots takes two ends that have ever more to say through every state they can come
// to, and returns what is wrong with one. Credits stand for all that is no return.
func exploreSlots(t *testing.T, depth int, broken, fixed func(*slots), held int) string {
	hook := func(f func(*slots), s *slots) {
		if f != nil {
			f(s)
		}
	}
	type state struct {
		free, arrived, posted [2]int
		wire                  [2]string // to each end: what each message returns
	}
	start := state{free: [2]int{depth, depth}}
	seen, todo := map[state]bool{start: true}, []state{start}
	s := countedSlots(t, MinDepth, MinDepth, MinPlaces)
	s.own, s.depth, s.used = depth, depth, s.used[:depth]
	load := func(st *state, i int) {
		s.free, s.arrived, s.posted, s.head, s.uses = st.free[i], st.arrived[i], st.posted[i], 0, 0
		under := uint16(s.depth - s.free)
		if s.streams.Set(0, under); under > 0 {
			s.used[0], s.uses = usage{n: under}, 1
		}
	}
	for len(todo) > 0 {
		st := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		moved := false
		visit := func(n state, i int) {
			moved = true
			n.free[i], n.arrived[i], n.posted[i] = s.free, s.arrived, s.posted
			if !seen[n] {
				seen[n] = true
				todo = append(todo, n)
			}
		}
		for i := range 2 {
			load(&st, i)
			hook(broken, s)
			due, returns, credits := s.Due(), s.CanReturn(), s.CanCredit()
			hook(fixed, s)
			if due && s.free <= 0 {
				return "a return that is due finds no slot"
			}
			if returns && due {
				n := st
				n.wire[1-i] += string(rune('0' + s.Return()))
				visit(n, i)
			}
			if credits && s.free > 0 {
				load(&st, i)
				n := st
				s.Credit()
				n.wire[1-i] += "."
				visit(n, i)
			}
			if w := st.wire[i]; w != "" {
				load(&st, i)
				n := st
				if s.Arrived() != nil {
					return "a message finds no receive"
				}
				if w[0] != '.' && s.Returned(int(w[0]-'0')) != nil {
					return "more is returned than was used"
				}
				if k := s.arrived - s.posted; k >= held {
					require.NoError(t, s.Reposted(k))
				}
				n.wire[i] = w[1:]
				visit(n, i)
			}
		}
		if !moved {
			return "stuck"
		}
	}
	t.Logf("%d receives: %d states", depth, len(seen))
	return ""
}
