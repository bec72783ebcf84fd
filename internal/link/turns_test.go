package link

import (
	"encoding/binary"
	"io"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// A loggedQP keeps the streams of the data messages that are posted, in order.
type loggedQP struct {
	verbs.QP
	mu      *sync.Mutex
	streams *[]lane.ID
}

func (q loggedQP) PostSend(wrs []verbs.SendWR) (int, error) {
	q.mu.Lock()
	for i := range wrs {
		imm := wrs[i].ImmData
		switch wrs[i].Opcode {
		case verbs.WRRDMAWriteWithImm:
		case verbs.WRSend: // a doorbell where there are no immediates
			imm = binary.BigEndian.Uint32(wrs[i].Inline)
		default:
			continue
		}
		if d, err := lane.ParseDoorbell(imm); err == nil && d.Type == lane.TypeData {
			*q.streams = append(*q.streams, d.Stream)
		}
	}
	q.mu.Unlock()
	return q.QP.PostSend(wrs)
}

// TestTurns: a Write that waits for the lane's lock waits for about turnBytes of a stream that has the
// lock, writes on and has room for much more. Now and then it waits for longer: the lane's goroutine asks
// for the lock as well, and can have it first. What is written ahead leaves the lock alone;
// TestWriteAheadYields is about that.
func TestTurns(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		const size, writes = 1 << 10, MaxFirstRing / 2 >> 10
		const rounds, least = 20, 10
		cfg.FirstRing, cfg.MaxRing, cfg.Lanes = MaxFirstRing, MaxFirstRing, 1
		b := newBed(t, cfg)
		busy, busyEnd := b.pair()
		other, otherEnd := b.pair()
		e := busy.e
		require.Same(t, e, other.e)
		var mu sync.Mutex
		var streams []lane.ID
		early := 0
		for i := range rounds {
			e.mu.Lock()
			if i == 0 {
				e.sq.qp = loggedQP{e.sq.qp, &mu, &streams}
			}
			waits := func(n int32) {
				within(t, "a Write begins to wait", func() {
					for e.mu.waiting.Load() < n {
						runtime.Gosched()
					}
				})
			}
			before := e.mu.waiting.Load() // the lane's goroutine may
			errs := make(chan error, 2)
			go func() {
				var err error
				for range writes {
					if _, err = busy.Write(make([]byte, size)); err != nil {
						break
					}
				}
				errs <- err
			}()
			waits(before + 1)
			go func() {
				_, err := other.Write([]byte{1})
				errs <- err
			}()
			waits(before + 2)
			e.mu.Unlock()
			within(t, "all Writes", func() {
				require.NoError(t, <-errs)
				require.NoError(t, <-errs)
				_, err := io.ReadFull(busyEnd, make([]byte, writes*size))
				require.NoError(t, err)
				_, err = io.ReadFull(otherEnd, make([]byte, 1))
				require.NoError(t, err)
			})
			mu.Lock()
			at := slices.Index(streams, other.st.ID())
			streams = streams[:0]
			mu.Unlock()
			require.GreaterOrEqual(t, at, 0)
			if at <= 4*turnBytes/size {
				early++
			}
		}
		require.GreaterOrEqual(t, early, least, "of %d it waited for long all but so many times", rounds)
	})
}
