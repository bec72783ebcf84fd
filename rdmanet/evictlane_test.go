package rdmanet

import (
	"context"
	"encoding/binary"
	"log/slog"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// silentDialer connects to a listener as docs/PROTOCOL.md has a lane begin, and says nothing more.
// It stays until the test ends.
func silentDialer(t *testing.T, at netip.AddrPort) {
	t.Helper()
	id, err := cm.NewHandlerChannel(func(*cm.Event) {}).CreateID(cm.Options{Device: "soft0"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, id.Close()) })
	require.NoError(t, id.Resolve(context.Background(), netip.AddrPort{}, at))
	pd, err := id.Verbs().AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pd.Close()) })
	cq, err := id.Verbs().CreateCQ(128, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cq.Close()) })
	qp, err := id.CreateQP(pd, &verbs.QPInitAttr{
		Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, qp.Close()) })

	hello := make([]byte, 48)
	copy(hello, "RDML\x01\x30")
	le := binary.LittleEndian
	le.PutUint16(hello[6:], 64)  // streams
	hello[8] = 1                 // RDMA WRITE with immediate
	le.PutUint32(hello[12:], 64) // receives
	le.PutUint64(hello[16:], 4096)
	le.PutUint32(hello[24:], 1)  // the rkey of records
	le.PutUint32(hello[28:], 16) // which are so many
	le.PutUint32(hello[32:], 1)  // epoch
	le.PutUint16(hello[36:], 1)  // lanes
	le.PutUint64(hello[40:], 1)  // link
	require.NoError(t, id.Connect(&cm.ConnParam{PrivateData: hello}, 0))
}

// TestSilentLanesAreLogged: of clients that are answered and say nothing more, and give way to
// others, the log tells as of those that have asked for nothing.
func TestSilentLanesAreLogged(t *testing.T) {
	onSoftware(t)
	out := newRecorder(slog.LevelWarn)
	l, err := (&ListenConfig{Device: "soft0", HandshakeTimeout: time.Hour, Logger: slog.New(out)}).listen(t.Context(), "rdma", loopbackAddr)
	require.NoError(t, err)
	defer l.Close()
	const silent, places = 80, 64 // as docs/ARCHITECTURE.md has it
	for range silent {
		silentDialer(t, l.addr.AddrPort())
	}
	c, err := (&Dialer{Device: "soft0", Timeout: patience}).dial(t.Context(), "rdma", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	for told := uint64(0); told < silent-places || told < l.Stats().Evicted; {
		within(t, patience, "the next line", func() {
			line := <-out.records
			require.Equal(t, "rdmanet: clients that were silent gave way to others", line.Message)
			said := attrs(line)
			require.Equal(t, l.Addr().String(), said["listener"])
			n, err := strconv.ParseUint(said["clients"], 10, 64)
			require.NoError(t, err)
			told += n
		})
		require.LessOrEqual(t, told, l.Stats().Evicted)
	}
	require.Zero(t, l.Stats().HalfOpen)
}
