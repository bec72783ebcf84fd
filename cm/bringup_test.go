package cm

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// fakeQP records how it is taken from state to state.
type fakeQP struct {
	verbs.QP
	ctx   fakeContext
	typ   verbs.QPType
	state verbs.QPState
	steps []verbs.QPAttr
	masks []verbs.QPAttrMask
	fails verbs.QPState // Modify to it fails with errModify
}

type fakePD struct {
	verbs.PD
	ctx fakeContext
}

var errModify = errors.New("the device will not")

func (q *fakeQP) QPN() uint32           { return 0x11 }
func (q *fakeQP) Type() verbs.QPType    { return q.typ }
func (q *fakeQP) State() verbs.QPState  { return q.state }
func (q *fakeQP) PD() verbs.PD          { return fakePD{ctx: q.ctx} }
func (p fakePD) Context() verbs.Context { return p.ctx }

func (q *fakeQP) Modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	q.steps, q.masks = append(q.steps, *attr), append(q.masks, mask)
	if attr.State == q.fails {
		return errModify
	}
	q.state = attr.State
	return nil
}

// qpAt makes a QP on the device that has an address, and finds its port.
func qpAt(t *testing.T, addr string) (*fakeQP, *Port) {
	t.Helper()
	at, err := portFor(testDevices(), "", netip.MustParseAddr(addr), testOwners)
	require.NoError(t, err)
	return &fakeQP{ctx: fakeContext{dev: at.Device.(fakeDevice)}, typ: verbs.QPTypeRC, fails: verbs.QPErr}, &at
}

// peerOf is the address of a peer of the same kind.
func peerOf(local QPAddr) QPAddr {
	remote := local
	remote.QPN, remote.PSN = 0x22, 0x654321
	remote.GID[15] ^= 0xff
	if remote.LID != 0 {
		remote.LID = 99
	}
	return remote
}

func TestBringUp(t *testing.T) {
	qp, at := qpAt(t, "10.0.5.1")
	local, err := LocalQPAddr(qp, at)
	require.NoError(t, err)
	require.Equal(t, QPAddr{GID: at.GID, GIDType: verbs.GIDTypeRoCEv2, QPN: 0x11, PSN: local.PSN, MTU: verbs.MTU1024, RdAtomic: 8}, local)
	remote := peerOf(local)
	remote.MTU, remote.RdAtomic = verbs.MTU512, 3
	require.NoError(t, BringUp(qp, at, local, remote, nil))

	require.Equal(t, []verbs.QPAttrMask{verbs.RCMaskInit, verbs.RCMaskRTR, verbs.RCMaskRTS}, qp.masks)
	want := verbs.QPAttr{
		PortNum: 1, AccessFlags: verbs.AccessLocalWrite | verbs.AccessRemoteWrite,
		AH: verbs.AHAttr{
			DGID: remote.GID, SGIDIndex: 8, PortNum: 1, IsGlobal: true, HopLimit: 64,
		},
		PathMTU: verbs.MTU512, DestQPN: 0x22, RQPSN: 0x654321, SQPSN: local.PSN,
		MaxDestRdAtomic: 8, MaxRdAtomic: 3,
		MinRNRTimer: 12, Timeout: 16, RetryCnt: 7, RNRRetry: 6,
	}
	for i, to := range []verbs.QPState{verbs.QPInit, verbs.QPRTR, verbs.QPRTS} {
		want.State = to
		require.Equal(t, want, qp.steps[i])
	}
}

func TestBringUpUC(t *testing.T) {
	qp, at := qpAt(t, "10.0.5.1")
	qp.typ = verbs.QPTypeUC
	local, err := LocalQPAddr(qp, at)
	require.NoError(t, err)
	require.NoError(t, BringUp(qp, at, local, peerOf(local), nil))
	require.Equal(t, []verbs.QPAttrMask{verbs.UCMaskInit, verbs.UCMaskRTR, verbs.UCMaskRTS}, qp.masks)
}

// A UD QP needs no peer.
func TestBringUpUD(t *testing.T) {
	qp, at := qpAt(t, "10.0.5.1")
	qp.typ = verbs.QPTypeUD
	local, err := LocalQPAddr(qp, at)
	require.NoError(t, err)
	param := DefaultBringUpParam()
	param.QKey = 0x1234
	require.NoError(t, BringUp(qp, at, local, QPAddr{}, &param))
	require.Equal(t, []verbs.QPAttrMask{verbs.UDMaskInit, verbs.UDMaskRTR, verbs.UDMaskRTS}, qp.masks)
	require.EqualValues(t, 0x1234, qp.steps[0].QKey)
}

// With receives posted in INIT, and with parameters of its own.
func TestBringUpFromInit(t *testing.T) {
	qp, at := qpAt(t, "10.0.0.1")
	param := &BringUpParam{
		Access: verbs.AccessLocalWrite | verbs.AccessRemoteRead, AckTimeout: 10, RetryCount: 2, MinRNRTimer: 1, RNRRetryCount: 7, TOS: 0x68, SL: 3,
	}
	require.NoError(t, InitQP(qp, at, param))
	require.Equal(t, []verbs.QPAttrMask{verbs.RCMaskInit}, qp.masks)
	require.Equal(t, verbs.QPInit, qp.steps[0].State)
	require.EqualValues(t, 1, qp.steps[0].PortNum)
	require.Equal(t, verbs.AccessLocalWrite|verbs.AccessRemoteRead, qp.steps[0].AccessFlags)

	local, err := LocalQPAddr(qp, at)
	require.NoError(t, err)
	require.NoError(t, BringUp(qp, at, local, peerOf(local), param))
	require.Equal(t, []verbs.QPAttrMask{verbs.RCMaskInit, verbs.RCMaskRTR, verbs.RCMaskRTS}, qp.masks, "INIT once")
	last := qp.steps[2]
	require.EqualValues(t, []uint8{10, 2, 1, 7, 0x68, 3}, []uint8{last.Timeout, last.RetryCnt, last.MinRNRTimer, last.RNRRetry, last.AH.TrafficClass, last.AH.SL})
	require.EqualValues(t, 4, last.MaxRdAtomic, "the device takes no more")
}

// InfiniBand goes by LID, without a GRH.
func TestBringUpOnInfiniBand(t *testing.T) {
	qp, at := qpAt(t, "192.168.7.1")
	local, err := LocalQPAddr(qp, at)
	require.NoError(t, err)
	require.EqualValues(t, 17, local.LID)
	require.NoError(t, BringUp(qp, at, local, peerOf(local), nil))
	require.EqualValues(t, 99, qp.steps[1].AH.DLID)
	require.False(t, qp.steps[1].AH.IsGlobal)
	require.Equal(t, verbs.MTU2048, qp.steps[1].PathMTU)
}

func TestPSNsDiffer(t *testing.T) {
	qp, at := qpAt(t, "10.0.0.1")
	seen := map[uint32]bool{}
	for range 16 {
		a, err := LocalQPAddr(qp, at)
		require.NoError(t, err)
		require.LessOrEqual(t, a.PSN, uint32(bits24))
		seen[a.PSN] = true
	}
	require.Greater(t, len(seen), 12)
}

// What cannot work is refused before the QP is touched.
func TestBringUpRefuses(t *testing.T) {
	v6 := verbs.GIDFromAddr(netip.MustParseAddr("2001:db8::2"))
	for name, c := range map[string]struct {
		addr   string
		change func(qp *fakeQP, at *Port, local, remote *QPAddr)
		want   error
		text   string
	}{
		"another type of GID": {"10.0.0.1", func(_ *fakeQP, _ *Port, _, r *QPAddr) { r.GIDType = verbs.GIDTypeRoCEv1 }, verbs.ErrNoRoute, "RoCE v2 and RoCE v1 do not understand each other"},
		"InfiniBand and RoCE": {"10.0.0.1", func(_ *fakeQP, _ *Port, _, r *QPAddr) { *r = ibQPAddr() }, verbs.ErrNoRoute, "RoCE v2 and IB do not"},
		"IPv4 and IPv6":       {"10.0.0.1", func(_ *fakeQP, _ *Port, _, r *QPAddr) { r.GID = v6 }, verbs.ErrNoRoute, "one is an IPv4 address"},
		"another subnet":      {"192.168.7.1", func(_ *fakeQP, _ *Port, _, r *QPAddr) { r.GID[7] = 9 }, verbs.ErrNotSupported, "in another InfiniBand subnet"},
		"QPN of 25 bits":      {"10.0.0.1", func(_ *fakeQP, _ *Port, _, r *QPAddr) { r.QPN = 1 << 24 }, verbs.ErrProtocol, "QPN 0x1000000"},
		"local PSN":           {"10.0.0.1", func(_ *fakeQP, _ *Port, l, _ *QPAddr) { l.PSN = 1 << 24 }, verbs.ErrProtocol, "PSN 0x1000000"},
		"MTU 0":               {"10.0.0.1", func(_ *fakeQP, _ *Port, _, r *QPAddr) { r.MTU = 0 }, verbs.ErrProtocol, "path MTU 0"},
		"MTU past the port's": {"10.0.0.1", func(_ *fakeQP, _ *Port, l, _ *QPAddr) { l.MTU = verbs.MTU4096 }, verbs.ErrInvalid, "the port has an MTU of 1024 bytes, not 4096"},
		"another QP":          {"10.0.0.1", func(_ *fakeQP, _ *Port, l, _ *QPAddr) { l.QPN = 0x12 }, verbs.ErrInvalid, "the local address is not that of QP 0x000011"},
		"another port":        {"10.0.0.1", func(_ *fakeQP, _ *Port, l, _ *QPAddr) { l.GID[15]++ }, verbs.ErrInvalid, "the local address is not at RoCE v2 10.0.0.1"},
		"another GID index":   {"10.0.0.1", func(_ *fakeQP, p *Port, _, _ *QPAddr) { p.Index = 8 }, verbs.ErrInvalid, "GID index 8 of port 1 is not RoCE v2 10.0.0.1 but RoCE v2 10.0.5.1"},
		"RoCE v1 of it":       {"10.0.0.1", func(_ *fakeQP, p *Port, _, _ *QPAddr) { p.Index = 2 }, verbs.ErrInvalid, "but RoCE v1 10.0.0.1"},
		"an empty GID":        {"10.0.0.1", func(_ *fakeQP, p *Port, _, _ *QPAddr) { p.Index = 4 }, verbs.ErrInvalid, "but an empty GID"},
		"no such GID index":   {"10.0.0.1", func(_ *fakeQP, p *Port, _, _ *QPAddr) { p.Index = 99 }, verbs.ErrInvalid, ""},
		"another device":      {"10.0.0.1", func(q *fakeQP, _ *Port, _, _ *QPAddr) { q.ctx.dev = fakeDevice{newNIC()} }, verbs.ErrInvalid, "the QP is on device nic0, the port is not"},
		"no device":           {"10.0.0.1", func(_ *fakeQP, p *Port, _, _ *QPAddr) { p.Device = nil }, verbs.ErrInvalid, "the port is not"},
		"a raw packet QP":     {"10.0.0.1", func(q *fakeQP, _ *Port, _, _ *QPAddr) { q.typ = 8 }, verbs.ErrNotSupported, "a QP of type QPType(8)"},
	} {
		t.Run(name, func(t *testing.T) {
			qp, at := qpAt(t, c.addr)
			local, err := LocalQPAddr(qp, at)
			require.NoError(t, err)
			remote := peerOf(local)
			c.change(qp, at, &local, &remote)
			err = BringUp(qp, at, local, remote, nil)
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, c.text)
			var be *BringUpError
			require.ErrorAs(t, err, &be)
			require.Equal(t, BringUpError{Local: local, Remote: remote, Err: be.Err}, *be)
			require.Empty(t, qp.steps)
		})
	}
}

func TestInitQPRefuses(t *testing.T) {
	qp, at := qpAt(t, "10.0.0.1")
	at.Index = 4
	err := InitQP(qp, at, nil)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	require.EqualError(t, err, "cm: cannot initialize QP 0x000011 at RoCE v2 10.0.0.1: "+
		"GID index 4 of port 1 is not RoCE v2 10.0.0.1 but an empty GID: invalid argument")
	require.Empty(t, qp.steps)
	at.Index = 3
	qp.fails = verbs.QPInit
	require.ErrorIs(t, InitQP(qp, at, nil), errModify)
}

// What the device refuses is told, with how far the QP came.
func TestBringUpFails(t *testing.T) {
	for fails, text := range map[verbs.QPState]string{verbs.QPInit: "RESET to INIT: ", verbs.QPRTR: "INIT to RTR: ", verbs.QPRTS: "RTR to RTS: "} {
		qp, at := qpAt(t, "10.0.0.1")
		qp.fails = fails
		local, err := LocalQPAddr(qp, at)
		require.NoError(t, err)
		err = BringUp(qp, at, local, peerOf(local), nil)
		require.ErrorIs(t, err, errModify)
		require.ErrorContains(t, err, "cm: cannot connect QP 0x000011 at RoCE v2 10.0.0.1 to QP 0x000022 at ")
		require.ErrorContains(t, err, text)
		require.Equal(t, fails, qp.steps[len(qp.steps)-1].State, "it stops there")
	}
}

// RoCE v1 carries GIDs as they are, so there the IP version does not matter.
func TestBringUpOnRoCEv1(t *testing.T) {
	qp, at := qpAt(t, "10.3.0.1")
	local, err := LocalQPAddr(qp, at)
	require.NoError(t, err)
	remote := peerOf(local)
	remote.GID = verbs.GIDFromAddr(netip.MustParseAddr("2001:db8::2"))
	require.NoError(t, BringUp(qp, at, local, remote, nil))
	require.True(t, qp.steps[1].AH.IsGlobal)
}
