package asynclog

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// handler passes lines on when it is let.
type handler struct {
	slog.Handler
	let   chan struct{}
	lines chan string
}

func (h handler) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (h handler) Handle(_ context.Context, r slog.Record) error {
	<-h.let
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	h.lines <- line
	return nil
}

// TestLog: who logs does not wait for a handler, whose lines that wait are bounded, and it is told what was
// lost.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const more = 10
		h := handler{slog.DiscardHandler, make(chan struct{}), make(chan string, 2*maxWaiting)}
		l := slog.New(h)
		Log(l, slog.LevelDebug, "not enabled")
		for i := range maxWaiting + more {
			Log(l, slog.LevelInfo, "line", "i", i)
		}
		synctest.Wait()
		require.Empty(t, h.lines)
		close(h.let)
		synctest.Wait()
		require.Len(t, h.lines, maxWaiting+1)
		got := map[string]bool{}
		for range maxWaiting + 1 {
			got[<-h.lines] = true
		}
		for i := range maxWaiting {
			require.Contains(t, got, fmt.Sprint("line i=", i))
		}
		require.Contains(t, got, fmt.Sprint("rdmanet: lines of the log were lost, its handler is slow lines=", more))

		Log(l, slog.LevelInfo, "the next")
		synctest.Wait()
		require.Equal(t, "the next", <-h.lines)
		require.Empty(t, h.lines)
	})
}
