package rdmanet

import (
	"errors"
	"log/slog"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring"
)

// TestLanesLog: what is wrong with a stream goes to the Logger of the dial or of the listener.
func TestLanesLog(t *testing.T) {
	for _, accepted := range []bool{true, false} {
		dials, accepts := newRecorder(slog.LevelInfo), newRecorder(slog.LevelInfo)
		client, server := flavour{
			dialer: Dialer{Checksum: true, Logger: slog.New(dials)}, listen: ListenConfig{Logger: slog.New(accepts)},
		}.pair(t)
		from, to, told, others := client, server, accepts, dials
		if !accepted {
			from, to, told, others = server, client, dials, accepts
		}
		write(t, from, 24)
		write(t, from, 50)
		require.Eventually(t, func() bool { return to.Stats().MessagesReceived == 2 }, patience, time.Millisecond)
		first, err := to.Peek(24)
		require.NoError(t, err)
		unsafe.Slice(unsafe.SliceData(first), 100)[24+ring.FrameHeaderLen+10] ^= 1
		_, err = to.Discard(24)
		require.NoError(t, err)
		_, err = to.Read(make([]byte, 100))
		requireChecksumError(t, err)
		within(t, patience, "the line", func() {
			record := <-told.records
			require.Equal(t, "rdmanet: bytes did not arrive as they were sent", record.Message)
			said := attrs(record)
			require.Equal(t, to.Device(), said["device"])
			require.Equal(t, to.LocalAddr().String(), said["local"])
			require.Equal(t, to.RemoteAddr().String(), said["remote"])
			require.Contains(t, said["err"], "24 bytes")
		})
		require.Empty(t, others.records)
	}
}

// TestDialersLaneLog: what a dialer's lane meets goes to the Logger of the dial that it was brought
// up for.
func TestDialersLaneLog(t *testing.T) {
	onSoftware(t)
	l, err := (&ListenConfig{Device: "soft0"}).listen(t.Context(), "rdma", loopbackAddr)
	require.NoError(t, err)
	defer l.Close()
	failing0.OnClose(func() error { return errors.New("it does not close") })
	defer failing0.OnClose(nil)
	for range 2 {
		told := newRecorder(slog.LevelWarn)
		d := Dialer{Device: "failing0", Timeout: patience, Logger: slog.New(told)}
		client, err := d.dial(t.Context(), "rdma", l.Addr().String())
		require.NoError(t, err)
		server, err := l.Accept()
		require.NoError(t, err)
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
		within(t, patience, "the line", func() {
			record := <-told.records
			for record.Message == "link: giving back memory" { // shortly after a test in which it was short
				record = <-told.records
			}
			assert.Equal(t, "link: destroying a lane's RDMA objects", record.Message)
			assert.Contains(t, attrs(record)["err"], "it does not close")
		})
	}
}
