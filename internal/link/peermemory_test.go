package link

import (
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// TestUnansweredMemory: a dialer whose device does not say that it has what is written to its
// memory, as that of a process which was stopped, is accepted all the same: it has a place of
// the backlog until then. Other dials go on.
func TestUnansweredMemory(t *testing.T) {
	b := newBed(t, Config{Lanes: 1, Backlog: 1})
	_, server := b.pair()
	e := server.e
	e.mu.Lock()
	cq := &silentCQ{e.sq.cq, true}
	e.sq.cq = cq
	e.peerMemory.known = nil // the next ring lies in memory that is not known
	e.mu.Unlock()
	client := b.dial()
	require.NoError(t, b.accept().Close())
	e.mu.Lock()
	require.Empty(t, e.unannounced)
	cq.silent = false
	e.mu.Unlock()
	require.NoError(t, client.Close())
	b.dial()
	b.accept()
}

// heldAsker answers questions for MRs when the test says so.
type heldAsker struct{ got chan func(known bool) }

func (h heldAsker) AskMR(_ uint32, got func(bool)) bool {
	h.got <- got
	return true
}

// hold has e ask h, not the device.
func (h heldAsker) hold(t *testing.T, e *laneEnd) {
	t.Helper()
	if !e.p.sameHost {
		t.Skip("the device needs nothing but the key")
	}
	e.mu.Lock()
	e.peerMemory.asker = h
	e.mu.Unlock()
}

// blockedOnMemory has a Write of size bytes wait for memory that the device asks for. It returns the answer.
func blockedOnMemory(t *testing.T, server *Stream, size int) (got func(known bool), wrote <-chan error) {
	t.Helper()
	h := heldAsker{make(chan func(bool), 1)}
	h.hold(t, server.e)
	done := make(chan error, 1)
	go func() {
		_, err := server.Write(make([]byte, size))
		done <- err
	}()
	return <-h.got, done
}

// TestRingInNewMemory: while the device asks for the memory of one stream's new ring others go on, and
// then it does, also where the device was not given the memory so.
func TestRingInNewMemory(t *testing.T) {
	const size = 256 << 10 // more than the first ring holds
	for _, known := range []bool{true, false} {
		b := newBed(t, Config{Lanes: 1})
		client, server := b.pair()
		otherClient, other := b.pair()
		got, wrote := blockedOnMemory(t, server, size)
		for i := range 1000 { // more messages than the send queue holds
			_, err := other.Write([]byte{byte(i)})
			require.NoError(t, err)
			var p [1]byte
			_, err = otherClient.Read(p[:])
			require.NoError(t, err)
			require.Equal(t, byte(i), p[0])
		}
		require.Empty(t, wrote)
		got(known)
		n, err := io.CopyN(io.Discard, client, size)
		require.NoError(t, err)
		require.EqualValues(t, size, n)
		require.NoError(t, <-wrote)
		e := server.e
		e.mu.Lock()
		at := e.peerMemory.known[server.now().st.Sender().Ring().RKey]
		e.mu.Unlock()
		require.Equal(t, known, at == 0, "it was touched")
		require.Less(t, at, uint64(askedInVain))
	}
}

// TestManyRingsInNewMemory: of many Writes that wait for memory no more are asked for at once than the device
// takes questions, an answer wakes those that wait for it and no other, and none is forgotten.
func TestManyRingsInNewMemory(t *testing.T) {
	const (
		n     = maxAsking + 8
		first = 16 << 10
		next  = first * growthFactor // which has memory of its own
	)
	b := newBed(t, Config{Lanes: 1, FirstRing: first, MaxRing: next})
	var clients, servers [n]*Stream
	for i := range n {
		clients[i], servers[i] = b.pair()
	}
	e := servers[0].e
	h := heldAsker{make(chan func(bool), n)}
	h.hold(t, e)
	var written [n]atomic.Bool
	var writers sync.WaitGroup
	for i, s := range servers {
		writers.Go(func() {
			k, err := s.Write(make([]byte, next))
			written[i].Store(k == next && err == nil)
		})
	}
	// state has for each stream whose Write has not returned how often that has waited.
	state := func() (unasked, unreached int, stalls map[int]uint64) {
		e.mu.Lock()
		defer e.mu.Unlock()
		stalls = map[int]uint64{}
		for i, s := range servers {
			if !written[i].Load() {
				stalls[i] = s.now().counts.seldom().stalls
			}
		}
		return len(e.peerMemory.unasked), len(e.peerMemory.unreached), stalls
	}
	require.Eventually(t, func() bool {
		unasked, unreached, _ := state()
		return unasked+unreached == n
	}, patience, time.Millisecond)
	_, _, before := state()
	e.mu.Lock()
	for _, s := range servers { // who looks again for another reason still waits once
		s.now().out.writable = true
		s.now().out.waiter.found(e)
	}
	e.mu.Unlock()
	require.Eventually(t, func() bool {
		_, _, after := state()
		for i := range before {
			if after[i] != before[i]+1 {
				return false
			}
		}
		return true
	}, patience, time.Millisecond)
	for answered := range n {
		unasked, unreached, before := state()
		require.Equal(t, n-answered, unasked+unreached)
		require.Equal(t, min(unreached, maxAsking), unreached)
		require.Len(t, h.got, unreached)
		(<-h.got)(true)
		var after map[int]uint64
		require.Eventually(t, func() bool {
			_, _, after = state()
			return len(after) == n-answered-1
		}, patience, time.Millisecond)
		require.Subset(t, before, after, "others were woken")
	}
	writers.Wait()
	for _, c := range clients {
		k, err := io.CopyN(io.Discard, c, next)
		require.NoError(t, err)
		require.EqualValues(t, next, k)
	}
}

// TestRingsOfSilentPeer: a stream is noted once, however many rings its peer offers in memory that it does not give,
// and no more when it has a ring in memory that is known, or has ended.
func TestRingsOfSilentPeer(t *testing.T) {
	const (
		known  = iota // the last ring lies in memory that is
		silent        // the last one does not
	)
	for last := range silent + 1 {
		for _, asking := range []int{0, maxAsking} {
			b := newBed(t, Config{Lanes: 1})
			other, otherEnd := b.separatePair()
			m := b.wirePair(lane.RoleDialer, wireConfig{})
			e, s := m.ours.e, m.ours.stream
			heldAsker{make(chan func(bool), maxAsking)}.hold(t, e)
			e.mu.Lock()
			e.peerMemory.asking = asking
			e.mu.Unlock()
			wrote := make(chan struct{})
			go func() {
				defer close(wrote)
				_, _ = m.ours.Write(make([]byte, 10*wireRing))
			}()
			waits := func() int {
				e.mu.Lock()
				defer e.mu.Unlock()
				return len(e.peerMemory.unreached) + len(e.peerMemory.unasked)
			}
			offer := func(rkey uint32) {
				r := m.s.own
				r.RKey = rkey
				m.p.say(lane.Record{Kind: lane.KindRing, Stream: m.s.id, Ring: r})
				require.Equal(t, m.s.id, m.p.heardRecord(lane.KindMoved).Stream)
				e.mu.Lock()
				s.out.writable = true
				s.out.waiter.found(e)
				e.mu.Unlock()
				require.Eventually(t, func() bool {
					e.mu.Lock()
					defer e.mu.Unlock()
					return s.out.reached == rkey
				}, patience, time.Millisecond)
			}
			for i := range uint32(20) {
				offer(m.s.own.RKey ^ (1 + i%2))
				require.Equal(t, 1, waits())
			}
			if last == known {
				offer(m.s.own.RKey)
				require.Zero(t, waits())
			}
			m.p.say(lane.Record{Kind: lane.KindReset, Stream: m.s.id, Code: lane.CodeReset})
			<-wrote // what it has posted of little counts as written
			require.NoError(t, m.ours.Close())
			require.Eventually(t, func() bool { return waits() == 0 }, patience, time.Millisecond)
			say(t, other, otherEnd)
		}
	}
}

// TestRingInNewMemoryLeft: the answer about the memory of a ring has nothing written to it, as the ring may
// be another stream's by then.
func TestRingInNewMemoryLeft(t *testing.T) {
	for range 5 { // a lane may still have had something else to say
		if postedForRingLeft(t) == 0 {
			return
		}
	}
	require.Fail(t, "something was written")
}

// postedForRingLeft returns how many requests a lane posts when it is told of the memory of a ring whose stream
// has ended.
func postedForRingLeft(t *testing.T) uint64 {
	b := newBed(t, Config{Lanes: 1})
	client, server := b.pair()
	b.pair() // for which the lane stays
	got, wrote := blockedOnMemory(t, server, 256<<10)
	require.NoError(t, server.Reset())
	require.Error(t, <-wrote)
	_, err := io.Copy(io.Discard, client)
	require.Error(t, err)
	require.NoError(t, client.Close())
	e := server.e
	posted := func() (n uint64, asked bool) {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, at := range e.peerMemory.known {
			asked = asked || at == beingAsked
		}
		return e.sq.posted, asked
	}
	var before uint64
	require.Eventually(t, func() bool { // what the end of the stream consists of
		last := before
		var asked bool
		before, asked = posted()
		require.True(t, asked)
		return last == before
	}, patience, 50*time.Millisecond)
	got(true)
	require.Eventually(t, func() bool {
		_, asked := posted()
		return !asked
	}, patience, time.Millisecond)
	after, _ := posted()
	return after - before
}

// TestDialsThatEndedInNewMemory: dials wait for the memory of rings that the listener takes back meanwhile.
// Nothing is written there, which would end the lane.
func TestDialsThatEndedInNewMemory(t *testing.T) {
	const (
		first = 256 << 10 // a chunk each
		dials = 3         // of which the listener may use a ring for its next place
	)
	b := newBed(t, Config{Lanes: 1, FirstRing: first, MaxRing: first, Places: 1})
	client, server := b.pair()
	h := heldAsker{make(chan func(bool), dials)}
	h.hold(t, client.e)
	dialled := make(chan *Stream, dials)
	for range dials {
		go func() {
			s, err := b.links.Dial(b.ctx(), Target{Dst: b.l.Addr()})
			if err != nil {
				t.Error(err)
			}
			dialled <- s
		}()
	}
	got := <-h.got
	for range dials {
		require.NoError(t, b.accept().Reset())
	}
	require.Eventually(t, func() bool {
		server.e.mu.Lock()
		defer server.e.mu.Unlock()
		return server.e.live == 1
	}, patience, time.Millisecond)
	slab := server.e.slab
	slab.Age()
	slab.Age()
	require.NoError(t, slab.Trim())
	require.Eventually(t, func() bool {
		server.e.mu.Lock()
		defer server.e.mu.Unlock()
		return slab.Registered() <= int64(server.e.live+server.e.state.Places()+1)*first // with one that it keeps
	}, patience, time.Millisecond)
	got(false)
	for range dials {
		late := <-dialled
		require.NotNil(t, late)
		_, err := late.Write([]byte("x"))
		require.Error(t, err)
		require.NoError(t, late.Close())
	}
	_, err := client.Write([]byte("x"))
	require.NoError(t, err)
	var p [1]byte
	_, err = server.Read(p[:])
	require.NoError(t, err)
}

// TestReachIsBounded: no more memory of a peer is remembered than the device maps, and what it is asked for
// stays.
func TestReachIsBounded(t *testing.T) {
	var r knownMRs
	r.set(1, beingAsked)
	for key := range uint32(maxReached + 10) {
		r.set(key+2, 0)
		require.Contains(t, r, key+2)
	}
	require.Len(t, r, maxReached)
	require.Contains(t, r, uint32(1))
}
