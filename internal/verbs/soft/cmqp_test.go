//go:build linux && (amd64 || arm64)

package soft

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// nowhere is a destination that resolves, for QPs that are connected by hand.
var nowhere = netip.MustParseAddrPort("127.0.0.1:1")

// offerTo hands the offer of e over s and returns it as the other end gets it.
func (e *dataEnd) offerTo(s, peer *control.Socket) (offer []byte, fds []int) {
	e.t.Helper()
	require.NoError(e.t, e.qp.(*qp).sendOffer(s, func(offer []byte) []byte { return append([]byte{0}, offer...) }))
	buf := make([]byte, control.MaxMessage)
	n, fds, err := peer.Recv(buf)
	require.NoError(e.t, err)
	return buf[1:n], fds
}

// TestArmedBeforeAttach checks that a sleeper is woken by what its peer wrote when
// the QP was up and not yet attached.
func TestArmedBeforeAttach(t *testing.T) {
	noLeaks(t)
	a, b := newDataEnd(t, unbuilt(t, nowhere)), newDataEnd(t, unbuilt(t, nowhere))
	sa, sb := socketsOf(t)
	offerA, fdsA := a.offerTo(sa, sb)
	offerB, fdsB := b.offerTo(sb, sa)
	qa, qb := a.qp.(*qp), b.qp.(*qp)
	ignore := func(error) {}
	attr := verbs.QPAttr{RNRRetry: 7, RetryCnt: 7, Timeout: verbs.DefaultAckTimeout}

	require.NoError(t, qb.toRTS(attr))
	require.NoError(t, qb.attach(newLink(qb, sb, sb, noCM, ignore), offerA, fdsA, nil))
	require.NoError(t, a.cq.ReqNotify(false))
	require.NoError(t, qa.toRTS(attr))
	_, err := qb.PostSend([]verbs.SendWR{{Opcode: verbs.WRRDMAWriteWithImm, RKey: a.mr.RKey(), RemoteAddr: a.mr.Addr()}})
	require.NoError(t, err)
	require.NoError(t, qa.attach(newLink(qa, sa, sa, noCM, ignore), offerB, fdsB, nil))

	require.NoError(t, a.ch.SetReadDeadline(time.Now().Add(patience)))
	cq, err := a.ch.GetEvent()
	require.NoError(t, err)
	require.Equal(t, a.cq, cq)
}

// TestOfferOfAClosedQP checks that no descriptor goes out that may be another's by now.
func TestOfferOfAClosedQP(t *testing.T) {
	noLeaks(t)
	a := newDataEnd(t, unbuilt(t, nowhere))
	s, _ := socketsOf(t)
	err := a.qp.(*qp).offer()
	require.NoError(t, err)
	require.NoError(t, a.qp.Close())
	err = a.qp.(*qp).sendOffer(s, func(offer []byte) []byte { return offer })
	require.ErrorIs(t, err, verbs.ErrClosed)
}

// TestOfferIsHeld checks that Close waits for who uses the descriptors of an offer.
func TestOfferIsHeld(t *testing.T) {
	noLeaks(t)
	q := newDataEnd(t, unbuilt(t, nowhere)).qp.(*qp)
	closed := make(chan struct{})
	require.NoError(t, q.withOffer(func([]byte, []int) error {
		go func() {
			defer close(closed)
			assert.NoError(t, q.Close())
		}()
		select {
		case <-closed:
			t.Error("the descriptors may be another's")
		case <-time.After(20 * time.Millisecond):
		}
		return nil
	}))
	<-closed
}

func TestCreateQPRefusals(t *testing.T) {
	noLeaks(t)
	id := unbuilt(t, nowhere)
	other, err := soft0iWARP.Open()
	require.NoError(t, err)
	defer other.Close()
	pd, err := other.AllocPD()
	require.NoError(t, err)
	defer pd.Close()
	_, err = id.CreateQP(pd, &verbs.QPInitAttr{Type: verbs.QPTypeRC})
	require.ErrorIs(t, err, verbs.ErrInvalid)
	_, err = id.CreateQP(nil, nil)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	require.ErrorIs(t, id.Connect(nil, 0), verbs.ErrState) // without a QP
	id.createQP()
	_, err = id.CreateQP(id.qp.PD(), &verbs.QPInitAttr{Type: verbs.QPTypeRC})
	require.ErrorIs(t, err, verbs.ErrState)
}

// TestParameters checks what the two ends' parameters make of the QPs.
func TestParameters(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 1, driver.CMOptions{})
	d := resolved(t, l.LocalAddr(), driver.CMOptions{AckTimeout: 14, TOS: 0x20})
	require.NoError(t, d.Connect(&driver.ConnParam{ResponderResources: 0, InitiatorDepth: 9, RetryCount: 3, RNRRetryCount: 5}, patience))
	a, _ := l.request()
	a.createQP()
	require.NoError(t, a.Accept(&driver.ConnParam{ResponderResources: 4, InitiatorDepth: 7, RNRRetryCount: 6}))
	d.next(driver.CMEstablished)
	a.next(driver.CMEstablished)

	of := func(q verbs.QP) verbs.QPAttr {
		attr, _, err := q.Query()
		require.NoError(t, err)
		return attr
	}
	attr := of(d.qp)
	require.EqualValues(t, 4, attr.MaxRdAtomic) // as many as the peer takes
	require.EqualValues(t, 0, attr.MaxDestRdAtomic)
	require.EqualValues(t, 3, attr.RetryCnt)
	require.EqualValues(t, 6, attr.RNRRetry) // the peer's to say
	require.EqualValues(t, 14, attr.Timeout)
	require.Equal(t, a.qp.QPN(), attr.DestQPN)
	require.Equal(t, verbs.AccessRemoteWrite, attr.AccessFlags) // it takes no READs
	require.Equal(t, verbs.GIDFromAddr(l.LocalAddr().Addr()), attr.AH.DGID)

	require.EqualValues(t, 0x20, attr.AH.TrafficClass)

	attr = of(a.qp)
	require.EqualValues(t, 0, attr.MaxRdAtomic)
	require.EqualValues(t, 4, attr.MaxDestRdAtomic)
	require.EqualValues(t, 3, attr.RetryCnt) // the dialer's, for both
	require.EqualValues(t, 5, attr.RNRRetry)
	require.EqualValues(t, verbs.DefaultAckTimeout, attr.Timeout)
	require.EqualValues(t, 0x20, attr.AH.TrafficClass) // the dialer's, for both
	require.Equal(t, d.qp.QPN(), attr.DestQPN)
	require.Equal(t, verbs.AccessRemoteWrite|verbs.AccessRemoteRead|verbs.AccessRemoteAtomic, attr.AccessFlags)
}
