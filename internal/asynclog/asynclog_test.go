package asynclog

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// handler passes lines on when it is let.
type handler struct {
	slog.Handler
	let   chan struct{}
	lines chan string
}

func newHandler() handler {
	return handler{slog.DiscardHandler, make(chan struct{}), make(chan string, 2*maxWaiting)}
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
// lost. Other Loggers lose nothing.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const more = 10
		h, other := newHandler(), newHandler()
		close(other.let)
		l := slog.New(h)
		Log(l, slog.LevelDebug, "not enabled")
		for i := range maxWaiting + more {
			Log(l, slog.LevelInfo, "line", "i", i)
		}
		Log(slog.New(other), slog.LevelError, "of another")
		synctest.Wait()
		require.Empty(t, h.lines)
		require.Equal(t, "of another", <-other.lines)
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
		require.Empty(t, loggers)
	})
}

// placed passes on what a record says of itself.
type placed struct {
	slog.Handler
	records chan slog.Record
}

func (p placed) Enabled(context.Context, slog.Level) bool { return true }

func (p placed) Handle(_ context.Context, r slog.Record) error {
	p.records <- r
	return nil
}

// TestRecord: a line has the time and the place of the call.
func TestRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := placed{slog.DiscardHandler, make(chan slog.Record)}
		called := time.Now()
		Log(slog.New(p), slog.LevelError, "line")
		time.Sleep(time.Second)
		r := <-p.records
		require.Equal(t, called, r.Time)
		require.Equal(t, slog.LevelError, r.Level)
		frame, _ := runtime.CallersFrames([]uintptr{r.PC}).Next()
		require.Equal(t, "asynclog_test.go", filepath.Base(frame.File))
	})
}
