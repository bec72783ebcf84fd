package link

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// TestResetTexts: the error of a stream says why its peer has broken it off.
func TestResetTexts(t *testing.T) {
	eachPeer(t, func(t *testing.T, cfg Config, role lane.Role) {
		b := newBed(t, cfg)
		for code, text := range map[lane.Code]string{
			lane.CodePort:      "connection reset by peer: the listener has another stream of that port",
			lane.CodeGoingAway: "connection reset by peer: the listener takes no more streams",
			lane.CodeNoMemory:  "connection reset by peer: the peer has no memory for the stream",
			lane.CodeClosed:    "connection reset by peer: the listener was closed",
			lane.CodeProtocol:  "connection reset by peer: the peer says that this end broke the protocol",
			lane.CodeReset:     "connection reset by peer",
		} {
			m := b.wirePair(role, wireConfig{})
			m.p.say(lane.Record{Kind: lane.KindReset, Stream: m.s.id, Code: code})
			within(t, "a stream that was reset", func() {
				_, err := m.ours.Read(make([]byte, 1))
				require.ErrorIs(t, err, syscall.ECONNRESET)
				require.EqualError(t, err, text)
			})
		}
	})
}

// TestEndedText: the error of a stream whose peer has left says so.
func TestEndedText(t *testing.T) {
	eachPeer(t, func(t *testing.T, cfg Config, role lane.Role) {
		m := newBed(t, cfg).wirePair(role, wireConfig{})
		m.p.close()
		within(t, "a stream whose peer has left", func() {
			_, err := m.ours.Read(make([]byte, 1))
			require.ErrorIs(t, err, verbs.ErrPeerGone)
			// A request that was on its way may have told it, over a network by its retries.
			text, status, told := strings.Cut(err.Error(), ": work request failed: ")
			if told && status == "RETRY_EXC_ERR" && !m.ours.e.p.sameHost {
				require.Equal(t, "connection timed out: RDMA peer is gone: it does not answer", text)
				return
			}
			require.Equal(t, "connection reset by peer: RDMA peer is gone: the link has ended", text)
		})
	})
}

// TestGoneBy: what the connection manager says is not said twice, and the lane's address, which is no
// stream's, not at all.
func TestGoneBy(t *testing.T) {
	peer := netip.MustParseAddrPort("127.0.0.1:7")
	for text, err := range map[string]error{
		"RDMA peer is gone: the link has ended":                               nil,
		"RDMA peer is gone: the link has ended: RDMA device removed":          cm.ErrDeviceRemoved,
		"RDMA peer is gone: the link has ended: connection refused":           &cm.ConnectionError{Addr: peer, Err: syscall.ECONNREFUSED},
		"RDMA peer is gone: the link has ended: RDMA peer is gone: by itself": &cm.ConnectionError{Addr: peer, Err: fmt.Errorf("%w: by itself", verbs.ErrPeerGone)},
	} {
		got := goneBy(err)
		require.EqualError(t, got, text)
		require.ErrorIs(t, got, verbs.ErrPeerGone)
	}
	for _, err := range []error{&cm.ConnectionError{Addr: peer}, &cm.ConnectionError{Addr: peer, Err: verbs.ErrPeerGone}} {
		require.Equal(t, errGone, goneBy(err))
	}
	require.ErrorIs(t, goneBy(&cm.ConnectionError{Addr: peer, Err: syscall.ETIMEDOUT}), syscall.ETIMEDOUT)
}
