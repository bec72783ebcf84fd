//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestMRSlice(t *testing.T) {
	m := &mr{addr: 1 << 20, buf: make([]byte, 100)}
	for _, c := range []struct {
		addr uint64
		n    uint32
		ok   bool
	}{
		{1 << 20, 0, true}, {1 << 20, 100, true}, {1<<20 + 100, 0, true}, {1<<20 + 99, 1, true},
		{1 << 20, 101, false}, {1<<20 + 1, 100, false}, {1<<20 + 101, 0, false}, {1<<20 - 1, 1, false},
		{0, 1, false}, {1<<64 - 1, 1, false}, {1 << 20, 1<<32 - 1, false},
	} {
		s := m.slice(c.addr, c.n)
		require.Equal(t, c.ok, s != nil, "%+v", c)
		require.True(t, !c.ok || len(s) == int(c.n) && cap(s) == int(c.n))
	}
}

func TestKeyTable(t *testing.T) {
	var keys keyTable
	require.Nil(t, keys.lookup(5))
	p := &pd{}
	var all []*mr
	for range 300 { // through two growths
		m := &mr{pd: p}
		require.NoError(t, keys.add(m))
		require.NotZero(t, m.key)
		all = append(all, m)
	}
	for _, m := range all {
		require.Same(t, m, keys.lookup(m.key))
		require.Nil(t, keys.lookup(m.key^1), "another tag")
	}
	for _, m := range all[:100] {
		keys.remove(m)
		keys.remove(m)
		require.Nil(t, keys.lookup(m.key))
		keys.give(m.key)
	}
	require.Equal(t, 200, keys.used)
	// The keys of what is gone do not come back with the same tag at once.
	for range 100 {
		m := &mr{pd: p}
		require.NoError(t, keys.add(m))
		for _, old := range all[:100] {
			require.NotEqual(t, old.key, m.key)
		}
	}
}

// TestKeyTableConcurrent looks keys up while the table grows.
func TestKeyTableConcurrent(t *testing.T) {
	var keys keyTable
	p := &pd{}
	stays := &mr{pd: p}
	require.NoError(t, keys.add(stays))
	var stop atomic.Bool
	var wg sync.WaitGroup
	var lost atomic.Int32
	wg.Add(1)
	go func() {
		defer wg.Done()
		for !stop.Load() {
			if keys.lookup(stays.key) != stays {
				lost.Add(1)
			}
		}
	}()
	for range 2000 {
		require.NoError(t, keys.add(&mr{pd: p}))
	}
	stop.Store(true)
	wg.Wait()
	require.Zero(t, lost.Load())
}

// TestDeregisterUnderTraffic closes MRs while the peer writes into them: once Close
// has returned nothing changes any more.
func TestDeregisterUnderTraffic(t *testing.T) {
	for range 20 {
		a, b := newConnected(t, defaults())
		m, err := b.pd.RegMR(b.bytes(4096, 8), verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
		require.NoError(t, err)
		started := make(chan struct{})
		done := make(chan verbs.WCStatus)
		go func() {
			defer close(done)
			var wc [1]verbs.WC
			var word [8]byte
			for i := uint64(1); ; i++ {
				shm.HostOrder.PutUint64(word[:], i)
				wr := verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline | verbs.SendSignaled, Inline: word[:],
					RemoteAddr: m.Addr(), RKey: m.RKey()}
				if _, err := a.qp.PostSend([]verbs.SendWR{wr}); err != nil {
					done <- verbs.WCGeneralErr
					return
				}
				for n := 0; n == 0; {
					n, _ = a.cq.Poll(wc[:])
				}
				if i == 10 {
					close(started)
				}
				if wc[0].Status != verbs.WCSuccess {
					done <- wc[0].Status
					return
				}
			}
		}()
		<-started
		require.NoError(t, m.Close())
		require.NoError(t, b.mr.Close())
		last := shm.HostOrder.Uint64(b.bytes(4096, 8))
		require.Equal(t, verbs.WCRemAccessErr, <-done)
		require.Equal(t, last, shm.HostOrder.Uint64(b.bytes(4096, 8)))
	}
}

// TestDeregisterWhileCopying closes MRs, and unmaps their memory, while requests of
// this side copy out of it and into it: they fail, and nothing faults.
func TestDeregisterWhileCopying(t *testing.T) {
	const size = 512 << 10
	for range 100 {
		a, b := newConnected(t, defaults())
		m, err := newMemoryOf(a.ctx, size, size)
		require.NoError(t, err)
		r, err := a.pd.RegMR(m.Bytes(), verbs.AccessLocalWrite)
		require.NoError(t, err)
		sge := []verbs.SGE{{Addr: r.Addr(), Length: size, LKey: r.LKey()}}
		started, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; a.qp.State() == verbs.QPRTS; i++ {
				op := []verbs.WROpcode{verbs.WRRDMAWrite, verbs.WRRDMARead}[i%2]
				wr := verbs.SendWR{Opcode: op, Flags: verbs.SendSignaled, SGList: sge, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
				_, _ = a.qp.PostSend([]verbs.SendWR{wr})
				_, _ = a.cq.Poll(make([]verbs.WC, 1))
				if i == 1 {
					close(started)
				}
			}
		}()
		<-started
		require.NoError(t, r.Close())
		require.NoError(t, m.Close())
		<-done
	}
}

// TestReadOnlyExport: a peer that may only read gets a mapping it cannot write.
func TestReadOnlyExport(t *testing.T) {
	a, b := newConnected(t, defaults())
	m, err := b.pd.RegMR(b.bytes(4096, 100), verbs.AccessRemoteRead)
	require.NoError(t, err)
	copy(b.bytes(4096, 4), "read")
	a.post(verbs.SendWR{Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.sge(0, 4)}, RemoteAddr: m.Addr(), RKey: m.RKey()})
	require.Equal(t, verbs.WC{Opcode: verbs.WCRDMARead, ByteLen: 4, QPN: a.qp.QPN()}, a.next())
	require.Equal(t, "read", string(a.bytes(0, 4)))

	reg := m.(*mr)
	reg.mu.Lock()
	fd, err := reg.dupFD()
	reg.mu.Unlock()
	require.NoError(t, err)
	o := reg.offer()
	o.Access |= verbs.AccessRemoteWrite
	_, err = o.Open(fd)
	require.ErrorIs(t, err, verbs.ErrProtocol)
	control.CloseFDs([]int{fd})
	require.NoError(t, m.Close())
}

// TestExportWithoutDescriptor: the error says how much memory could not be offered.
func TestExportWithoutDescriptor(t *testing.T) {
	_, b := newConnected(t, defaults())
	m, err := b.pd.RegMR(b.bytes(4096, 100), verbs.AccessRemoteWrite|verbs.AccessLocalWrite)
	require.NoError(t, err)
	reg := m.(*mr)
	restore, _, err := leaktest.TakeDescriptors()
	require.NoError(t, err)
	defer restore()
	reg.mu.Lock()
	_, err = reg.dupFD()
	reg.mu.Unlock()
	require.EqualError(t, err, "no descriptor for 100 bytes of shared memory: fcntl: too many open files (raise RLIMIT_NOFILE)")
	require.NoError(t, m.Close())
}

// mapMR has a map an MR of b, by a write that it returns.
func (a *side) mapMR(b *side, m verbs.MR) verbs.SendWR {
	a.t.Helper()
	wr := write(b, 0, []byte("x"))
	wr.RKey = m.RKey()
	wr.Flags |= verbs.SendSignaled
	a.post(wr)
	require.Equal(a.t, verbs.WCSuccess, a.next().Status)
	return wr
}

// TestMRInvalidated: LOCAL_INV calls the memory back from the peer.
func TestMRInvalidated(t *testing.T) {
	a, b := newConnected(t, defaults())
	m, err := b.pd.RegMR(b.bytes(0, 64), verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	require.NoError(t, err)
	wr := a.mapMR(b, m)
	b.post(verbs.SendWR{WRID: 3, Opcode: verbs.WRLocalInv, Flags: verbs.SendSignaled, ImmData: m.LKey()})
	require.Equal(t, verbs.WC{WRID: 3, Opcode: verbs.WCLocalInv, QPN: b.qp.QPN()}, b.next())
	a.post(wr)
	require.Equal(t, verbs.WCRemAccessErr, a.next().Status)
	require.NoError(t, m.Close())
}

// TestCloseWhileInvalidated: an MR or a window that a peer has invalidated does not close before every peer
// that maps the memory has let go of it.
func TestCloseWhileInvalidated(t *testing.T) {
	for _, window := range []bool{false, true} {
		t.Run(fmt.Sprintf("window=%v", window), func(t *testing.T) {
			a, b := newConnected(t, defaults())
			r, err := b.pd.RegMR(b.bytes(0, 64), verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessMWBind)
			require.NoError(t, err)
			m := r.(*mr)
			key := m.key
			closings := []func() error{r.Close}
			if window {
				w, err := b.pd.AllocMW()
				require.NoError(t, err)
				b.post(verbs.SendWR{Opcode: verbs.WRBindMW, Flags: verbs.SendSignaled,
					Bind: &verbs.MWBind{MW: w, MR: m, Addr: m.addr, Length: 64, Access: verbs.AccessRemoteWrite, Key: 5}})
				require.Equal(t, verbs.WCSuccess, b.next().Status)
				key = w.RKey()
				closings = append(closings, w.Close)
			}
			a.post(verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline | verbs.SendSignaled, Inline: []byte{1}, RemoteAddr: m.addr, RKey: key})
			require.Equal(t, verbs.WCSuccess, a.next().Status)
			b.postRecv(1, 0)
			// The peer does not let go of it before it says so.
			a.qp.mu.Lock()
			a.qp.peer.out.Publish(shm.EntrySendInv|shm.EntryData, key, 0)
			require.Equal(t, key, b.next().InvRKey)
			closed := make(chan error, len(closings))
			for _, closing := range closings {
				go func() { closed <- closing() }()
			}
			time.Sleep(time.Millisecond)
			select {
			case <-closed:
				a.qp.mu.Unlock()
				t.Fatal("it closes while a peer has it mapped")
			default:
			}
			a.qp.mu.Unlock()
			for range closings {
				require.NoError(t, <-closed)
			}
			a.qp.mu.Lock()
			defer a.qp.mu.Unlock()
			require.Nil(t, a.qp.peer.find(key))
		})
	}
}
