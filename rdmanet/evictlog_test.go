package rdmanet

import (
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestEvictLog has many give way at once: that is two lines, which tell of all of them.
func TestEvictLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newRecorder(slog.LevelWarn)
		e := evictLog{logger: slog.New(out)}
		at := &net.TCPAddr{Port: 7}
		lines := func(clients ...string) {
			t.Helper()
			synctest.Wait()
			require.Len(t, out.records, len(clients))
			for _, n := range clients {
				line := <-out.records
				require.Equal(t, "rdmanet: clients that were silent gave way to others", line.Message)
				require.Equal(t, map[string]string{"listener": ":7", "clients": n}, attrs(line))
			}
		}
		e.note(at)
		lines("1")
		for range 41 {
			e.note(at)
		}
		lines()
		time.Sleep(evictPause)
		lines("41")
		time.Sleep(time.Hour)
		lines()
		e.note(at)
		lines("1")
		time.Sleep(time.Hour)
	})
}
