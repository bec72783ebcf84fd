package lane

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An EventReadable comes once for all that has arrived before it is taken, in the order in which streams
// became readable, and before all others.
func TestReadableInOrder(t *testing.T) {
	pair := newPair(t, 3)
	var streams [3]*Stream
	for i := range streams {
		var err error
		streams[i], err = pair[0].Open(Ring{RKey: uint32(10 + i), Size: 4096}, uint16(100+i))
		require.NoError(t, err)
	}
	carry(t, pair)
	l := pair[1]
	for _, order := range [][]int{{0}, {2, 0, 1}, {1, 1, 0, 1, 2, 0}, {2, 2}, {0, 1, 2}} {
		var want []ID
		for i, k := range order {
			_, b, ok, err := pair[0].Data(streams[k], 1, false)
			require.NoError(t, err)
			require.True(t, ok)
			if i == 1 { // in the middle of it
				l.tell(Event{Kind: EventWant, Count: 1})
			}
			deliver(t, l, Message{Bell: b}, nil)
			if id := streams[k].ID(); !slices.Contains(want, id) {
				want = append(want, id)
			}
		}
		require.True(t, l.Happened())
		var got []ID
		others := 0
		for e, ok := l.Event(); ok; e, ok = l.Event() {
			if e.Kind == EventReadable {
				require.Zero(t, others, "it comes first")
				got = append(got, e.Stream.ID())
			} else {
				others++
			}
		}
		assert.Equal(t, want, got)
		assert.Equal(t, min(len(order)-1, 1), others)
		assert.False(t, l.Happened())
		assert.Nil(t, l.Readable())
	}
}
