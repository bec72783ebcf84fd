//go:build linux && (amd64 || arm64)

package soft

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// What each message of a data test looks like, and how many may be under way.
const (
	dataWindow = 16
	dataSlots  = 2 * dataWindow
	dataSlot   = 1024
	dataSize   = dataSlots * dataSlot
)

// A dataEnd is an id with a QP, memory that the peer may write to, and receives.
type dataEnd struct {
	*testID
	ch   verbs.CompChannel
	cq   verbs.CQ
	mem  verbs.Memory
	mr   verbs.MR
	peer struct {
		addr uint64
		rkey uint32
	}
}

// newDataEnd gives an id that knows its device all that data needs.
func newDataEnd(t *testing.T, id *testID) *dataEnd {
	t.Helper()
	e := &dataEnd{testID: id}
	ctx := id.Verbs()
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { pd.Close() })
	e.ch, err = ctx.CreateCompChannel()
	require.NoError(t, err)
	t.Cleanup(func() { e.ch.Close() })
	e.cq, err = ctx.CreateCQ(4*dataSlots, e.ch)
	require.NoError(t, err)
	t.Cleanup(func() { e.cq.Close() })
	e.mem, err = ctx.AllocMemory(dataSize, dataSize)
	require.NoError(t, err)
	t.Cleanup(func() { e.mem.Close() })
	e.mr, err = pd.RegMR(e.mem.Bytes()[:dataSize], verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	require.NoError(t, err)
	t.Cleanup(func() { e.mr.Close() })
	id.qp, err = id.CreateQP(pd, &verbs.QPInitAttr{
		Type: verbs.QPTypeRC, SendCQ: e.cq, RecvCQ: e.cq,
		Cap: verbs.QPCap{MaxSendWR: dataSlots, MaxRecvWR: dataSlots, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: dataSlot},
	})
	require.NoError(t, err)
	t.Cleanup(func() { id.qp.Close() })
	// In INIT: the peer may write as soon as it is connected.
	for range dataSlots {
		_, err := id.qp.PostRecv([]verbs.RecvWR{{}})
		require.NoError(t, err)
	}
	return e
}

// hello is private data that says where this end may be written to.
func (e *dataEnd) hello() []byte {
	b := binary.LittleEndian.AppendUint64(nil, e.mr.Addr())
	return binary.LittleEndian.AppendUint32(b, e.mr.RKey())
}

func (e *dataEnd) takeHello(private []byte) {
	e.t.Helper()
	require.GreaterOrEqual(e.t, len(private), 12)
	e.peer.addr = binary.LittleEndian.Uint64(private)
	e.peer.rkey = binary.LittleEndian.Uint32(private[8:])
}

// dataPattern fills b with message i.
func dataPattern(b []byte, i int) {
	for k := range b {
		b[k] = byte(i*31 + k)
	}
}

func dataLen(i int) int { return i * 37 % (dataSlot + 1) }

// exchange writes n messages to the peer and takes n from it. Message i goes out
// when message i-dataWindow of the peer is here, which it wrote after it had read
// what the slot held before.
func (e *dataEnd) exchange(n int) error {
	sent, received := 0, 0
	msg, want := make([]byte, dataSlot), make([]byte, dataSlot)
	wcs := make([]verbs.WC, 8)
	var failure error
	send := func() error {
		for ; sent < n && sent < received+dataWindow; sent++ {
			b := msg[:dataLen(sent)]
			dataPattern(b, sent)
			_, err := e.qp.PostSend([]verbs.SendWR{{
				Opcode: verbs.WRRDMAWriteWithImm, Flags: verbs.SendInline | verbs.SendSignaled, Inline: b,
				ImmData: uint32(sent), RKey: e.peer.rkey,
				RemoteAddr: e.peer.addr + uint64(sent%dataSlots*dataSlot),
			}})
			if err != nil {
				return fmt.Errorf("send %d: %w", sent, err)
			}
		}
		return nil
	}
	receive := func(wc *verbs.WC) error {
		if wc.Status == verbs.WCWRFlushErr && sent == n && received == n {
			return nil // the peer is done too, and gone
		}
		if wc.Status != verbs.WCSuccess {
			return wc.Status
		}
		if !wc.Opcode.IsRecv() {
			return nil
		}
		b := want[:dataLen(received)]
		dataPattern(b, received)
		got := e.mem.Bytes()[received%dataSlots*dataSlot:][:wc.ByteLen]
		if wc.ImmData != uint32(received) || string(got) != string(b) {
			return fmt.Errorf("message %d came as %d with %d bytes", received, wc.ImmData, wc.ByteLen)
		}
		received++
		_, err := e.qp.PostRecv([]verbs.RecvWR{{}})
		return err
	}
	poll := func() (some bool, err error) {
		k, err := e.cq.Poll(wcs)
		for i := 0; i < k && err == nil; i++ {
			err = receive(&wcs[i])
		}
		return k > 0, err
	}
	if err := e.ch.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	for sent < n || received < n {
		if err := send(); err != nil {
			return err
		}
		err := e.ch.WaitRead(func() bool {
			some, err := poll()
			if !some && err == nil {
				if err = e.cq.ReqNotify(false); err == nil {
					some, err = poll()
				}
			}
			failure = err
			return some || err != nil
		})
		if err == nil {
			err = failure
		}
		if err != nil {
			return fmt.Errorf("after %d sent and %d received: %w", sent, received, err)
		}
	}
	return nil
}

// acceptData takes one connection of l for data.
func acceptData(t *testing.T, l *testID) *dataEnd {
	t.Helper()
	a, ev := l.request()
	e := newDataEnd(t, a)
	e.takeHello(ev.Param.PrivateData)
	require.NoError(t, a.Accept(&driver.ConnParam{PrivateData: e.hello(), RNRRetryCount: 7}))
	return e
}

// dialData starts to connect to a listener for data.
func dialData(t *testing.T, to *testID) *dataEnd {
	t.Helper()
	e := newDataEnd(t, to)
	require.NoError(t, to.Connect(&driver.ConnParam{PrivateData: e.hello(), RetryCount: 7, RNRRetryCount: 7}, patience))
	return e
}

func TestDataInOneProcess(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{})
	for range 20 {
		d := dialData(t, unbuilt(t, l.LocalAddr()))
		a := acceptData(t, l)
		done := make(chan error, 2)
		// The accepted end may begin before it is ESTABLISHED.
		go func() { done <- a.exchange(2000) }()
		d.takeHello(d.next(driver.CMEstablished).Param.PrivateData)
		go func() { done <- d.exchange(2000) }()
		require.NoError(t, <-done)
		require.NoError(t, <-done)
		a.next(driver.CMEstablished)
	}
}

// TestDataBeforeDisconnect checks that all that was written before a disconnect
// arrives before the flush.
func TestDataBeforeDisconnect(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{})
	for range 20 {
		d := dialData(t, unbuilt(t, l.LocalAddr()))
		a := acceptData(t, l)
		d.takeHello(d.next(driver.CMEstablished).Param.PrivateData)
		const n = dataSlots / 2
		for i := range n {
			_, err := d.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRRDMAWriteWithImm, ImmData: uint32(i), RKey: d.peer.rkey, RemoteAddr: d.peer.addr}})
			require.NoError(t, err)
		}
		require.NoError(t, d.Disconnect())
		a.next(driver.CMEstablished)
		require.NoError(t, a.next(driver.CMDisconnected).Err)
		wcs := make([]verbs.WC, 2*dataSlots)
		k, err := a.cq.Poll(wcs)
		require.NoError(t, err)
		require.Equal(t, dataSlots, k)
		for i := range wcs[:k] {
			if i < n {
				require.Equal(t, verbs.WCSuccess, wcs[i].Status)
				require.EqualValues(t, i, wcs[i].ImmData)
			} else {
				require.Equal(t, verbs.WCWRFlushErr, wcs[i].Status)
			}
		}
	}
}
