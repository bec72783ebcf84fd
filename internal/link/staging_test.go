package link

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStaging takes pieces of all sizes, posts them in another order than they were taken,
// and completes them in the order of the posts: no byte is ever given out twice, and what was
// posted always makes room again for the largest message.
func TestStaging(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	s := staging{memory: make([]byte, mostStaging)}
	owner := make([]*staged, mostStaging/64)
	var filling, posted []*staged
	var seq, completed uint64
	free := func() {
		for len(posted) > 0 && posted[0].last <= completed {
			e := posted[0]
			posted = posted[1:]
			for i := e.off / 64; i < (e.off+len(e.bytes))/64; i++ {
				require.Same(t, e, owner[i])
				owner[i] = nil
			}
		}
	}
	taken := 0
	for range 6000 {
		switch rnd.IntN(3) {
		case 0:
			free := s.free()
			if e := s.take(64 * (1 + rnd.IntN(1024))); e != nil {
				taken++
				require.LessOrEqual(t, len(e.bytes), free)
				require.LessOrEqual(t, s.free(), free-len(e.bytes)) // less where the end is skipped
				for i := e.off / 64; i < (e.off+len(e.bytes))/64; i++ {
					require.Nil(t, owner[i], "given out twice")
					owner[i] = e
				}
				filling = append(filling, e)
			}
		case 1:
			if n := len(filling); n > 0 {
				i := rnd.IntN(n)
				e := filling[i]
				filling[i] = filling[n-1]
				filling = filling[:n-1]
				seq++
				e.last = seq
				posted = append(posted, e)
			}
		case 2:
			if completed < seq {
				completed++
				free()
				s.freed(completed)
			}
		}
	}
	require.Greater(t, taken, 500)
	for _, e := range filling {
		seq++
		e.last = seq
		posted = append(posted, e)
	}
	completed = seq
	free()
	s.freed(completed)
	require.Empty(t, s.entries)
	require.NotNil(t, s.take(1<<16))
}
