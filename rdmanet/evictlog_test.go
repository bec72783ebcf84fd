package rdmanet

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestEvictLog has many give way at once: that is two lines, which tell of all of them.
func TestEvictLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		e := evictLog{logger: slog.New(slog.NewTextHandler(&out, nil))}
		at := &net.TCPAddr{Port: 7}
		lines := func(want ...string) {
			t.Helper()
			synctest.Wait()
			require.Equal(t, len(want), strings.Count(out.String(), "\n"), out.String())
			for _, w := range want {
				require.Contains(t, out.String(), w)
			}
			out.Reset()
		}
		e.note(at)
		lines("level=WARN msg=\"rdmanet: clients that were silent gave way to others\" listener=:7 clients=1")
		for range 41 {
			e.note(at)
		}
		lines()
		time.Sleep(evictPause)
		lines("clients=41")
		time.Sleep(time.Hour)
		lines()
		e.note(at)
		lines("clients=1")
		time.Sleep(time.Hour)
	})
}
