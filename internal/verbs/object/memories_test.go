package object

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

type piece struct{ bytes []byte }

func (p *piece) Bytes() []byte { return p.bytes }

// TestMemories finds the memory that all of a buffer is of, and keeps one that has users.
func TestMemories(t *testing.T) {
	var all Memories[*piece]
	whole := make([]byte, 300)
	first, last := &piece{whole[:100:100]}, &piece{whole[200:]}
	found := func(buf []byte) *piece { p, _ := all.Find(buf); return p }
	require.Nil(t, found(whole[:1]))
	all.Add(last)
	all.Add(first)
	for at, want := range map[int]*piece{0: first, 99: first, 100: nil, 199: nil, 200: last, 299: last} {
		require.Same(t, want, found(whole[at:at+1]), "%d", at)
	}
	p, off := all.Find(whole[250:300])
	require.Same(t, last, p)
	require.Equal(t, 50, off)
	require.Nil(t, found(whole[:101]), "it is longer")
	require.Nil(t, found(whole[199:202]), "it begins before")

	var users Users
	require.NoError(t, users.Hold())
	require.ErrorIs(t, all.Close(first, &users), verbs.ErrBusy)
	require.Same(t, first, found(whole[:1]))
	users.Release()
	require.NoError(t, all.Close(first, &users))
	require.Nil(t, found(whole[:1]))
	require.Same(t, last, found(whole[200:]))
	require.ErrorIs(t, all.Close(first, &users), verbs.ErrClosed)
}
