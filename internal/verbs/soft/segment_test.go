//go:build linux && (amd64 || arm64)

package soft

import (
	"testing"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/stretchr/testify/require"
)

// TestJointGeometry: the parts of a joint inbox lie apart from each other and from the
// memory, and what an idle connection needs is on the page that is backed at first.
func TestJointGeometry(t *testing.T) {
	for shift := range uint8(maxQueueShift + 1) {
		g := geometry{shift: shift, bounceShift: bounceShift, joint: true}
		page, entries := g.firstPage(), entrySize<<shift
		require.Zero(t, page%pageSize)
		require.GreaterOrEqual(t, g.lensOff(), g.bounceOff()+g.bounceSize())
		require.Zero(t, g.lensOff()%pageSize)
		require.GreaterOrEqual(t, g.entriesOff(), g.lensOff()+4<<shift)
		require.Zero(t, g.entriesOff()%min(entries, lineSize))
		require.Equal(t, g.headOff(), g.entriesOff()+entries)
		require.Equal(t, g.memoryOff(), g.headOff()+offLens)
		require.Zero(t, g.memoryOff()%lineSize)
		require.Equal(t, page+pageSize, g.size())
		require.Less(t, g.memoryOff(), g.size())

		at := g.entriesOff() + int(g.start())*entrySize
		require.GreaterOrEqual(t, at, page, "the first entries to be used are backed")
		from, to := g.later()
		require.Equal(t, [2]int{g.lensOff(), page}, [2]int{from, to})
		if g.start() > 0 {
			require.EqualValues(t, 1<<shift, g.first())
			require.Equal(t, page, at)
		} else {
			require.EqualValues(t, noReach, g.first())
		}
	}
}

// segmentOf allocates memory for a QP of depth receives.
func segmentOf(t *testing.T, ctx *devContext, size, committed, depth int) *memory {
	t.Helper()
	m, err := ctx.AllocQueueMemory(size, committed, depth)
	require.NoError(t, err)
	return m.(*memory)
}

// TestSegmentIsOnePage: memory and queue of which nothing has been used yet are one page,
// which either may outlive.
func TestSegmentIsOnePage(t *testing.T) {
	noLeaks(t)
	for _, memoryFirst := range []bool{false, true} {
		ctx := soft0.open()
		m := segmentOf(t, ctx, 1<<20, 256, 256)
		require.NoError(t, m.Commit(2000))
		require.GreaterOrEqual(t, len(m.Bytes()), 1<<20)
		require.LessOrEqual(t, 2000, m.Committed())
		in := m.segment.makeInbox(&qp{}, nil)
		require.NotNil(t, in)
		require.Equal(t, pageSize, backing(t, m.fd))
		m.Bytes()[0], m.Bytes()[1999] = 1, 1
		*in.armed = 1
		require.Nil(t, m.segment.makeInbox(&qp{}, nil), "one queue, one QP")
		if memoryFirst {
			require.NoError(t, m.Close())
			*in.armed = 2
			in.close()
		} else {
			in.close()
			m.Bytes()[0] = 2
			require.NoError(t, m.Close())
		}
		require.NoError(t, ctx.Close())
	}
}

// TestSegmentCommits: what is used later is backed then, up to the end of the memory.
func TestSegmentCommits(t *testing.T) {
	ctx := soft0.open()
	m := segmentOf(t, ctx, 16*pageSize, 0, 256)
	require.NoError(t, m.Commit(16*pageSize))
	require.Equal(t, 17*pageSize, backing(t, m.fd))
	for i := range m.Bytes() {
		m.Bytes()[i] = 1
	}
	require.Equal(t, 17*pageSize, backing(t, m.fd))
	require.ErrorIs(t, m.Commit(len(m.Bytes())+1), verbs.ErrInvalid)
	require.NoError(t, m.Close())
	for _, bad := range [][2]int{{0, 0}, {-1, 0}, {8, 9}, {8, -1}, {1<<46 + 1, 0}} {
		_, err := ctx.AllocQueueMemory(bad[0], bad[1], 16)
		require.ErrorIs(t, err, verbs.ErrInvalid)
	}
	require.NoError(t, ctx.Close())
}

// TestSegmentHasOnePeer: whoever has the file can write to the queue, so while a QP has
// its inbox there its peer is the only one that gets the memory; and once the memory was
// given to somebody, no inbox is made there any more.
func TestSegmentHasOnePeer(t *testing.T) {
	c := defaults()
	victim, _ := newConnected(t, c)
	require.True(t, victim.qp.in.joint)

	other := func() (*qp, *side) {
		q, err := victim.pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: victim.cq, RecvCQ: victim.cq,
			Cap: verbs.QPCap{MaxSendWR: 8, MaxRecvWR: c.depth, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 64}})
		require.NoError(t, err)
		require.NoError(t, q.Modify(&verbs.QPAttr{State: verbs.QPInit, PortNum: 1, AccessFlags: c.access}, verbs.RCMaskInit))
		beside := *victim
		beside.qp, beside.gone = q.(*qp), make(chan hangup, 1)
		stranger := newSide(t, c)
		connect(t, stranger, &beside, c)
		return beside.qp, stranger
	}
	writeBy := func(stranger *side) verbs.WCStatus {
		stranger.post(verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline | verbs.SendSignaled, Inline: make([]byte, 8),
			RemoteAddr: victim.mr.Addr(), RKey: victim.mr.RKey()})
		return stranger.next().Status
	}
	q, stranger := other()
	require.False(t, q.in.joint)
	require.Equal(t, verbs.WCRemAccessErr, writeBy(stranger))
	require.NoError(t, q.Close())

	require.NoError(t, victim.qp.Modify(&verbs.QPAttr{State: verbs.QPReset}, verbs.QPMaskState))
	q, stranger = other()
	require.Equal(t, verbs.WCSuccess, writeBy(stranger), "the memory is anybody's now")
	require.NoError(t, q.Close())
	require.NoError(t, victim.qp.Modify(&verbs.QPAttr{State: verbs.QPInit, PortNum: 1, AccessFlags: c.access}, verbs.RCMaskInit))
	require.False(t, victim.qp.in.joint)
}

// TestSegmentNotWritable: a peer that may only read the memory does not get the file of the
// queue to write to.
func TestSegmentNotWritable(t *testing.T) {
	c := defaults()
	c.access = verbs.AccessLocalWrite | verbs.AccessRemoteRead
	a, b := newConnected(t, c)
	require.False(t, b.qp.in.joint)
	copy(b.mem.Bytes(), "readable")
	a.post(verbs.SendWR{Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.sge(64, 8)},
		RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()})
	require.Equal(t, verbs.WCSuccess, a.next().Status)
	require.Equal(t, "readable", string(a.mem.Bytes()[64:72]))
}

// TestJointLens: the lengths of receives have memory once one is not blank, and the sender
// of more than that is refused.
func TestJointLens(t *testing.T) {
	c := defaults()
	c.depth = 256
	a, b := newConnected(t, c)
	_, err := b.qp.PostRecv(make([]verbs.RecvWR, 10))
	require.NoError(t, err)
	require.True(t, b.qp.in.noLens)
	_, err = b.qp.PostRecv([]verbs.RecvWR{{SGList: []verbs.SGE{b.sge(0, 100)}}})
	require.NoError(t, err)
	require.False(t, b.qp.in.noLens)
	require.Zero(t, *b.qp.in.lenOf(uint32(b.qp.in.start()) + 9))
	require.EqualValues(t, 100, *b.qp.in.lenOf(uint32(b.qp.in.start()) + 10))
	for range 10 {
		a.post(writeImm(b, 0, nil, 1))
		b.next()
	}
	a.post(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline | verbs.SendSignaled, Inline: make([]byte, 101)})
	require.Equal(t, verbs.WCRemInvReqErr, a.next().Status)
}

// TestTrimJoint: what an idle line keeps is the first page again, and empty behind it.
func TestTrimJoint(t *testing.T) {
	ctx := soft0.open()
	m := segmentOf(t, ctx, 64*pageSize, 256, 256)
	in := m.segment.makeInbox(&qp{}, nil)
	m.sharing.known, in.sharing.known = true, true
	require.NoError(t, m.trimJoint(in))
	require.True(t, m.sharing.known && in.sharing.known)

	m.data[40*pageSize] = 1
	require.NoError(t, in.commitEntries())
	require.NoError(t, in.backLens())
	*in.lenOf(3), *(*uint64)(entryAt(in, 0)) = 7, 7
	require.NoError(t, m.trimJoint(in))
	require.False(t, m.sharing.known || in.sharing.known, "the peer takes for backed what is not")
	require.Equal(t, pageSize, backing(t, m.fd))
	require.Equal(t, in.first(), in.reach)
	require.True(t, in.noLens)
	require.Zero(t, m.data[40*pageSize])
	require.Zero(t, *in.lenOf(3))
	require.Zero(t, *(*uint64)(entryAt(in, 0)))
	in.close()
	require.NoError(t, m.Close())
	require.NoError(t, ctx.Close())
}
