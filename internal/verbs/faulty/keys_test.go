package faulty

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// keyed is an MR of which only the key and the address are asked for.
type keyed struct {
	verbs.MR
	key  uint32
	addr uint64
}

func (k keyed) LKey() uint32 { return k.key }
func (k keyed) Addr() uint64 { return k.addr }

// TestKeys: an SGE is found by its key if all of it is in the MR, and until that is closed.
func TestKeys(t *testing.T) {
	var k keys
	m := &mr{MR: keyed{key: 7, addr: 1000}, buf: make([]byte, 100)}
	k.add(m)
	for _, c := range []struct {
		sge  verbs.SGE
		want int
	}{
		{verbs.SGE{Addr: 1000, Length: 100, LKey: 7}, 100},
		{verbs.SGE{Addr: 1099, Length: 1, LKey: 7}, 1},
		{verbs.SGE{Addr: 1099, Length: 2, LKey: 7}, 0},
		{verbs.SGE{Addr: 999, Length: 2, LKey: 7}, 0},
		{verbs.SGE{Addr: 1000, Length: 1, LKey: 8}, 0},
	} {
		_, b := k.find(c.sge)
		require.Len(t, b, c.want, "%+v", c.sge)
	}
	next := &mr{MR: keyed{key: 7, addr: 5000}, buf: make([]byte, 1)}
	k.add(next)
	k.remove(m)
	got, _ := k.find(verbs.SGE{Addr: 5000, Length: 1, LKey: 7})
	require.Same(t, next, got, "the key was given to another before it was forgotten")
	k.remove(next)
	require.Empty(t, k.mrs)
}

// TestReuseBeforeAnswer: over a network of iWARP the completion of a WRITE says only that TCP has it, and
// that of a READ behind it that the peer has.
func TestReuseBeforeAnswer(t *testing.T) {
	for _, c := range []struct {
		next                 verbs.WROpcode
		answers, waits, told bool
	}{
		{verbs.WRRDMARead, false, false, false},
		{verbs.WRRDMARead, true, false, true},
		{verbs.WRRDMAWrite, true, false, true}, // who asks for no answer at all is found too
		{verbs.WRRDMARead, true, true, false},
	} {
		var k keys
		m := &mr{MR: keyed{key: 7}, buf: make([]byte, 100)}
		k.add(m)
		var s sources
		s.init(false, c.answers)
		wr := verbs.SendWR{WRID: 1, Flags: verbs.SendSignaled, SGList: []verbs.SGE{{Length: 100, LKey: 7}}}
		s.add([]verbs.SendWR{wr}, &k)
		require.NoError(t, s.completed(1))
		if !c.waits {
			m.buf[0]++
		}
		wr.WRID, wr.Opcode = 2, c.next
		s.add([]verbs.SendWR{wr}, &k)
		require.Equal(t, c.told, s.completed(2) != nil, "%+v", c)
		require.Empty(t, s.requests)
		require.Empty(t, s.reads)
	}
}
