//go:build linux

package hosts

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// confirmations matches RTU of the connection manager in IPv4: a packet of RoCE v2 for QP 1, whose
// MAD is of class 7 and has attribute 0x14. The offsets count from the IP header, of 20 bytes; then
// come UDP's of 8, BTH's of 12, DETH's of 8 and the MAD.
const confirmations = "match ip dport 4791 0xffff match u32 0x000001 0xffffff at 32 match u8 7 0xff at 49 match u16 0x14 0xffff at 64"

// testLostConfirmations has the listener's host get no confirmation of any connection. What the
// dialer says then takes its place, and the connection can be used. The listener's kernel, which
// would repeat its answer for a minute and then end the connection, asks for no other confirmation.
//
// They are lost where they arrive: soft-RoCE fails a QP that cannot send.
func testLostConfirmations(t *testing.T, w *world) {
	const (
		size = 1 << 20
		// repeated is longer than the kernel waits for a confirmation: 4.096 us * 2^20 for the peer
		// (CMA_CM_RESPONSE_TIMEOUT), and for the way there and back.
		repeated = 15 * time.Second
	)
	h := w[1]
	h.run(t, "tc qdisc add dev $LINK clsact")
	t.Cleanup(func() { h.run(t, "tc qdisc del dev $LINK clsact") })
	h.run(t, "tc filter add dev $LINK ingress protocol ip u32 "+confirmations+" action drop")
	lost := func() int { return h.dropped(t, "tc -s filter show dev $LINK ingress") }
	near, far := connect(w[0].start(t).in(t), h.start(t).in(t), Settings{})
	out, in := pour(near, far, 1, size), pour(far, near, 2, size)
	out.whole(time.Minute)
	in.whole(time.Minute)
	n := lost()
	require.NotZero(t, n, "no confirmation was lost")
	time.Sleep(repeated)
	require.Equal(t, n, lost(), "the connection is not established at the listener")
	t.Logf("%d confirmations were lost", n)
	near.close()
	far.close()
}
