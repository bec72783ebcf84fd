package lane

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/cacheline"
)

func TestTable(t *testing.T) {
	var table Table[string]
	require.Empty(t, table.At(0))
	require.Empty(t, table.At(MaxStream))
	require.Empty(t, table, "nothing was put there")
	table.Set(3, "three")
	table.Set(1, "one")
	require.Equal(t, Table[string]{"", "one", "", "three"}, table)
	require.Equal(t, "three", table.At(3))
	require.Empty(t, table.At(4))
	table.Set(3, "")
	require.Empty(t, table.At(3))
	table.Set(MaxStream, "last")
	require.Equal(t, "last", table.At(MaxStream))
	require.Equal(t, "one", table.At(1), "it has grown")
}

// TestTablesOfFewStreams: a lane on which there are few streams has no room for all that there may be.
func TestTablesOfFewStreams(t *testing.T) {
	pair := newPair(t, 2)
	_, err := pair[0].Open(Ring{Size: MinRing}, 0)
	require.NoError(t, err)
	carry(t, pair)
	for i, l := range pair {
		require.Less(t, cap(l.table), 16, "end %d", i)
		require.Equal(t, cacheline.Size, 2*cap(l.slots.streams), "end %d: it fills a line, and no more", i)
	}
}
