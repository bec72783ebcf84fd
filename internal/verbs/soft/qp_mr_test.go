//go:build linux && (amd64 || arm64)

package soft

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// newMROf registers an MR of s that its peer does not know.
func newMROf(t *testing.T, s *side) verbs.MR {
	t.Helper()
	m, err := s.pd.RegMR(s.bytes(0, 64), verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// silence has the peer not answer until the end of it.
func (s *side) silence() (end func()) {
	s.qp.mu.Lock()
	end = sync.OnceFunc(s.qp.mu.Unlock)
	s.t.Cleanup(end)
	return end
}

// writeToNew posts a write to an MR of b that a does not know.
func writeToNew(t *testing.T, a, b *side) verbs.MR {
	t.Helper()
	m := newMROf(t, b)
	b.bytes(0, 1)[0] = 0
	wr := write(b, 0, []byte("x"))
	wr.RKey = m.RKey()
	wr.Flags |= verbs.SendSignaled
	a.post(wr)
	return m
}

// requireWritten sees that end well.
func requireWritten(t *testing.T, a, b *side) {
	t.Helper()
	require.Equal(t, verbs.WCSuccess, a.next().Status)
	require.Equal(t, "x", string(b.bytes(0, 1)))
}

// missedOften waits until the MR could not be taken several times in a row, and reports whether it was
// mapped instead.
func missedOften(a *side, m verbs.MR) (mapped bool) {
	until(func() bool {
		a.qp.mu.Lock()
		defer a.qp.mu.Unlock()
		p := a.qp.peer
		mapped = p == nil || p.find(m.RKey()) != nil
		return mapped || p.missed > 2
	})
	return mapped
}

// TestMRWithoutDescriptors: MRs that a peer asks for while neither process has a descriptor left
// are written to all the same, one after the other.
func TestMRWithoutDescriptors(t *testing.T) {
	a, b := newConnected(t, defaults())
	restore, _, err := leaktest.TakeDescriptors()
	require.NoError(t, err)
	defer restore()
	for i := 0; i < 100 && a.qp.QPStats().MissedMRs < 5; i++ { // what ran before may give one back meanwhile
		writeToNew(t, a, b)
		requireWritten(t, a, b)
	}
	require.GreaterOrEqual(t, a.qp.QPStats().MissedMRs, uint64(5), "there always was a descriptor")
}

// TestMRWithoutSpare: where there is no spare either it is written to when there are descriptors again.
// Until then the connection stands.
func TestMRWithoutSpare(t *testing.T) {
	a, b := newConnected(t, defaults())
	restore, err := leaktest.LimitDescriptors(0) // not the number of the spare either
	require.NoError(t, err)
	defer restore()
	m := writeToNew(t, a, b)
	require.False(t, missedOften(a, m))
	restore()
	requireWritten(t, a, b)
	require.NotZero(t, a.qp.QPStats().MissedMRs)
	control.KeepSpare()
}

// fullAddressSpace has no room for MRs until restore: n bytes less than none.
func fullAddressSpace(t *testing.T, n int64) (restore func()) {
	t.Helper()
	more := shm.MaxAllMapped + n - shm.AllMapped.Load()
	shm.AllMapped.Add(more)
	return func() { shm.AllMapped.Add(-more) }
}

// TestMRMakesRoom: an MR that there is no room for takes that of an older one of the peer, which is
// mapped again when it is written to.
func TestMRMakesRoom(t *testing.T) {
	a, b := newConnected(t, defaults())
	defer fullAddressSpace(t, 0)()
	writeOld := func() {
		t.Helper()
		b.bytes(0, 1)[0] = 0
		wr := write(b, 0, []byte("x"))
		wr.Flags |= verbs.SendSignaled
		a.post(wr)
		requireWritten(t, a, b)
	}
	writeOld()
	for range 3 {
		m := writeToNew(t, a, b)
		requireWritten(t, a, b)
		requireMapped(t, a, m, b.mr)
		writeOld()
		requireMapped(t, a, b.mr, m)
	}
	require.Zero(t, a.qp.QPStats().MissedMRs)
}

// requireMapped sees which of two MRs is mapped.
func requireMapped(t *testing.T, a *side, is, isNot verbs.MR) {
	t.Helper()
	a.qp.mu.Lock()
	defer a.qp.mu.Unlock()
	require.NotNil(t, a.qp.peer.find(is.RKey()))
	require.Nil(t, a.qp.peer.find(isNot.RKey()))
}

// TestMRWithoutRoom: an MR that there is no room for is written to when there is. Until then the
// connection stands.
func TestMRWithoutRoom(t *testing.T) {
	a, b := newConnected(t, defaults())
	restore := fullAddressSpace(t, 1<<30)
	m := writeToNew(t, a, b)
	mapped := missedOften(a, m)
	restore()
	require.False(t, mapped)
	requireWritten(t, a, b)
	require.NotZero(t, a.qp.QPStats().MissedMRs)
	require.Empty(t, a.gone)

	// What it had mapped before it asks for again.
	wr := write(b, 1, []byte("y"))
	wr.Flags |= verbs.SendSignaled
	a.post(wr)
	require.Equal(t, verbs.WCSuccess, a.next().Status)
}

// TestMRWithoutRoomForLong: it does not wait for ever, and the end of the connection says what is
// missing.
func TestMRWithoutRoomForLong(t *testing.T) {
	for name, c := range map[string]struct {
		short func(t *testing.T) (restore func())
		errno error
	}{
		"descriptors": {func(t *testing.T) func() {
			restore, err := leaktest.LimitDescriptors(0)
			require.NoError(t, err)
			return restore
		}, unix.EMFILE},
		"memory": {func(t *testing.T) func() { return fullAddressSpace(t, 1<<30) }, unix.ENOMEM},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newConnected(t, defaults())
			restore := c.short(t)
			m := writeToNew(t, a, b)
			mapped := missedOften(a, m)
			a.qp.mu.Lock()
			if p := a.qp.peer; p != nil {
				p.missing = p.missing.Add(-maxMissed)
			}
			a.qp.mu.Unlock()
			h := a.hungUp()
			restore()
			require.False(t, mapped)
			require.False(t, h.orderly)
			require.ErrorIs(t, h.err, c.errno)
			require.NotEqual(t, verbs.WCSuccess, a.next().Status)
			control.KeepSpare()
		})
	}
}

// TestHostileMRWithoutRoom: what nobody has asked for ends the connection also then, and it takes
// nobody's room.
func TestHostileMRWithoutRoom(t *testing.T) {
	a, b := newConnected(t, defaults())
	c, d := newConnected(t, defaults())
	defer fullAddressSpace(t, 0)()
	fd := memfd(t, 8192, shm.WantSeals)
	defer control.CloseFDs([]int{fd})
	o := shm.MROffer{Key: 1, Addr: 1 << 20, Size: 8}
	require.NoError(t, linkOf(b).tx.Send(o.Append([]byte{msgMR}), []int{fd}))
	h := a.hungUp()
	require.False(t, h.orderly)
	require.ErrorIs(t, h.err, verbs.ErrNoMemory)

	wr := write(d, 0, []byte("x"))
	wr.Flags |= verbs.SendSignaled
	c.post(wr)
	requireWritten(t, c, d)
	require.Zero(t, c.qp.QPStats().MissedMRs)
}

// TestHostileMRForTheSpare has a peer answer with what it should not where the spare is given up
// for it.
func TestHostileMRForTheSpare(t *testing.T) {
	for name, c := range map[string]struct {
		offer  shm.MROffer
		sealed int
		fds    int
	}{
		"not sealed": {shm.MROffer{Key: 1, Addr: 1 << 20, Size: 8}, 0, 1},
		"too large":  {shm.MROffer{Key: 1, Addr: 1 << 20, Size: 1 << 20}, shm.WantSeals, 1},
		"two":        {shm.MROffer{Key: 1, Addr: 1 << 20, Size: 8}, shm.WantSeals, 2},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newConnected(t, defaults())
			var fds []int
			for range c.fds {
				fds = append(fds, memfd(t, 8192, c.sealed))
			}
			defer control.CloseFDs(fds)
			restore, _, err := leaktest.TakeDescriptors()
			require.NoError(t, err)
			defer restore()
			l := linkOf(b)
			end := b.silence() // no honest answer comes in between
			a.post(verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline, Inline: []byte{1}, RKey: b.mr.RKey() ^ 1, RemoteAddr: b.mr.Addr()})
			for range 2 { // the first is lost
				require.NoError(t, l.tx.Send(c.offer.Append([]byte{msgMR}), fds))
			}
			h := a.hungUp()
			end()
			restore()
			require.ErrorIs(t, h.err, verbs.ErrProtocol)
			control.KeepSpare()
		})
	}
}
