package memory

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// A sharedPD is one whose MRs a peer has mapped: they are closed when it lets go, or its QP has ended.
type sharedPD struct {
	heapPD
	letGo func() // returns then
	fails int    // so many RegMRs
}

type sharedMR struct {
	*heapMR
	letGo func()
}

func (pd *sharedPD) RegMR(b []byte, access verbs.AccessFlags) (verbs.MR, error) {
	if pd.fails > 0 {
		pd.fails--
		return nil, verbs.ErrNoMemory
	}
	m, err := pd.heapPD.RegMR(b, access)
	return &sharedMR{m.(*heapMR), pd.letGo}, err
}

func (m *sharedMR) Close() error {
	m.letGo()
	return m.heapMR.Close()
}

func (m *sharedMR) ClosePatiently() error { return m.Close() }

// A stuck is a Slab whose peer is stopped until release is closed.
type stuck struct {
	*Slab
	h       heap
	pd      sharedPD
	release chan struct{}
}

func newPeer(b *Budget) *stuck {
	s := &stuck{release: make(chan struct{})}
	s.pd.letGo = func() { <-s.release }
	s.Slab = NewSlab(&s.h, &s.pd, b, verbs.AccessLocalWrite)
	return s
}

// newStuck makes a Slab of which a chunk of size bytes is being given back.
func newStuck(t *testing.T, b *Budget, size uint32) *stuck {
	s := newPeer(b)
	s.giveOneBack(t, size)
	return s
}

func (s *stuck) giveOneBack(t *testing.T, size uint32) {
	p, err := s.Alloc(size, ForStream)
	require.NoError(t, err)
	s.giveBackPiece(t, p)
}

func (s *stuck) giveBackPiece(t *testing.T, p Piece) {
	s.Free(p)
	s.Age()
	s.Age()
	require.NoError(t, s.Trim())
}

// close ends the peer's QP, and with it the Slab.
func (s *stuck) close(t *testing.T) {
	close(s.release)
	require.NoError(t, s.Close())
	require.Zero(t, s.h.mapped.Load())
	require.Zero(t, s.pd.registered.Load())
}

// atOnce runs f in a bubble, whose clock must not move.
func atOnce(t *testing.T, f func()) {
	t.Helper()
	began := time.Now()
	f()
	require.Zero(t, time.Since(began))
}

// TestStoppedPeerHoldsUpNobody: while a peer does not let go of a chunk, no call waits for it on its own lane, and
// other lanes have what they can get of others.
func TestStoppedPeerHoldsUpNobody(t *testing.T) {
	const large = 4 * ChunkSize
	synctest.Test(t, func(t *testing.T) {
		b := budgetOf(16 * large)
		s := newStuck(t, b, large)
		other := newBookOf(t, b)
		atOnce(t, func() {
			p, err := s.Alloc(ChunkSize, ForGrowth)
			require.NoError(t, err)
			s.Free(p)
			s.Age()
			s.Age()
			require.NoError(t, s.Trim())
			s.Hold()
			require.NoError(t, s.Release())
			require.EqualValues(t, large+ChunkSize, s.Registered())
		})
		atOnce(t, func() {
			other.free(other.alloc(large))
			b.SetLimit(b.InUse())
			p, err := other.s.Alloc(2*ChunkSize, ForStream) // of what it keeps itself
			require.NoError(t, err)
			other.free(p)
		})
		require.EqualValues(t, large+ChunkSize, s.Registered())
		require.EqualValues(t, b.InUse(), s.Registered()+other.s.Registered())
		s.close(t)
		require.EqualValues(t, b.InUse(), other.s.Registered())
	})
}

// TestMemoryOfStoppedPeers: who finds too little waits a moment for memory that peers have, once for all of them
// and not again for those that have not let go of it. It counts until they have.
func TestMemoryOfStoppedPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budgetOf(1 << 30)
		var peers []*stuck
		for range 10 {
			peers = append(peers, newStuck(t, b, ChunkSize))
		}
		used := b.InUse()
		require.EqualValues(t, 10*ChunkSize, used)
		b.SetLimit(used)
		began := time.Now()
		var takers sync.WaitGroup
		for range 3 { // side by side
			takers.Go(func() { assert.ErrorIs(t, b.Take(1, ForStream), verbs.ErrNoMemory) })
		}
		takers.Wait()
		require.Equal(t, comesBack, time.Since(began))
		atOnce(t, func() { require.ErrorIs(t, b.Take(1, ForStream), verbs.ErrNoMemory) })
		require.Equal(t, used, b.InUse())

		close(peers[0].release)
		synctest.Wait()
		require.Equal(t, used-ChunkSize, b.InUse())
		peers[0] = newStuck(t, b, ChunkSize)
		began = time.Now()
		time.AfterFunc(comesBack/5, func() { close(peers[0].release) })
		require.NoError(t, b.Take(ChunkSize, ForStream), "it comes back")
		require.Equal(t, comesBack/5, time.Since(began))
		require.NoError(t, peers[0].Close())
		for _, p := range peers[1:] {
			p.close(t)
		}
		require.EqualValues(t, ChunkSize, b.InUse())
		require.Zero(t, b.going)
		require.Empty(t, b.keepers)
	})
}

// TestSlabCloseWaits: Close returns when the chunk that is being given back is closed as well.
func TestSlabCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budgetOf(1 << 30)
		s := newStuck(t, b, ChunkSize)
		_, err := s.Alloc(1<<10, ForStream)
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() { done <- s.Close() }()
		synctest.Wait()
		require.Empty(t, done)
		require.EqualValues(t, 2*ChunkSize, b.InUse())
		close(s.release)
		require.NoError(t, <-done)
		require.Zero(t, b.InUse())
		require.Zero(t, s.h.mapped.Load())
		require.Zero(t, s.pd.registered.Load())
	})
}

// TestPeerThatNeverLetsGo: a lane whose peer lets go of nothing uses again what it has, and has no more than it used
// at once, but for one chunk.
func TestPeerThatNeverLetsGo(t *testing.T) {
	const large = 4 * ChunkSize
	synctest.Test(t, func(t *testing.T) {
		b := budgetOf(1 << 30)
		s := newStuck(t, b, large)
		for range 20 {
			s.giveOneBack(t, large)
			s.giveOneBack(t, ChunkSize)
			require.LessOrEqual(t, b.InUse(), int64(2*large+ChunkSize))
		}
		require.Equal(t, b.InUse(), s.Registered())
		s.close(t)
		require.Zero(t, b.InUse())
	})
}

// TestSlabsOfPeersAtRandom: lanes whose peers take their time to let go, at the limit of the memory, give all
// of it back.
func TestSlabsOfPeersAtRandom(t *testing.T) {
	b := budgetOf(20 * ChunkSize)
	var lanes sync.WaitGroup
	for i := range 4 {
		lanes.Go(func() {
			rnd := rand.New(rand.NewPCG(2, uint64(i)))
			h, pd := &heap{}, &sharedPD{letGo: func() { time.Sleep(time.Duration(rand.IntN(20)) * time.Microsecond) }}
			for range 5 {
				s := NewSlab(h, pd, b, verbs.AccessLocalWrite)
				useAtRandom(t, s, rnd, 100, func() uint32 { return ChunkSize >> 4 << rnd.IntN(7) })
			}
			assert.Zero(t, h.mapped.Load())
			assert.Zero(t, pd.registered.Load())
		})
	}
	lanes.Wait()
	require.Zero(t, b.InUse())
	require.Zero(t, b.going)
	require.Empty(t, b.keepers)
}

// TestWaitsOnce: who finds too little waits no longer for peers that are asked while it waits.
func TestWaitsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budgetOf(1 << 30)
		peers := []*stuck{newStuck(t, b, ChunkSize)}
		for i := range 3 {
			s := newPeer(b)
			peers = append(peers, s)
			p, err := s.Alloc(ChunkSize, ForStream)
			require.NoError(t, err)
			time.AfterFunc(time.Duration(i+1)*comesBack*3/4, func() { s.giveBackPiece(t, p) })
		}
		other := NewSlab(&heap{}, &heapPD{}, b, verbs.AccessLocalWrite)
		b.SetLimit(b.InUse())
		began := time.Now()
		_, err := other.Alloc(ChunkSize, ForStream)
		require.ErrorIs(t, err, verbs.ErrNoMemory)
		require.Equal(t, comesBack, time.Since(began))
		time.Sleep(time.Second)
		for _, p := range peers {
			p.close(t)
		}
	})
}

// TestDeviceIsShort: where the device has too little what is given back has it tried again, also while others
// take as much of a limit that is far.
func TestDeviceIsShort(t *testing.T) {
	b := budgetOf(1 << 30)
	pd := &sharedPD{letGo: func() { require.NoError(t, b.Take(4*ChunkSize, ForStream)) }}
	s := NewSlab(&heap{}, pd, b, verbs.AccessLocalWrite)
	p, err := s.Alloc(ChunkSize, ForStream)
	require.NoError(t, err)
	s.Free(p)
	pd.fails = 1
	_, err = s.Alloc(4*ChunkSize, ForStream)
	require.NoError(t, err)
}
