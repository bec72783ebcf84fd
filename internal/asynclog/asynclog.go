// Package asynclog writes lines of a log where nobody may wait for that: under a lock, or on a goroutine
// that connections wait for. A handler may do anything, as be slow, or write to a connection itself.
package asynclog

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"
)

// maxWaiting bounds the lines that a Logger's handler has not taken: further ones are lost.
const maxWaiting = 64

// lines are those of one Logger that wait.
type lines struct{ waiting, lost int }

var (
	mu      sync.Mutex
	loggers = map[*slog.Logger]*lines{} // those whose lines wait
)

// Log has l write a line on a goroutine of its own, with the caller's place and the time of the call. Lines
// that come at the same time may change places, and where the handler is too slow some are lost, which a
// later one says. It may be called concurrently.
func Log(l *slog.Logger, level slog.Level, message string, args ...any) {
	ctx := context.Background()
	if !l.Enabled(ctx, level) {
		return
	}
	var caller [1]uintptr
	runtime.Callers(2, caller[:])
	r := slog.NewRecord(time.Now(), level, message, caller[0])
	r.Add(args...)
	mu.Lock()
	defer mu.Unlock()
	w := loggers[l]
	if w == nil {
		w = &lines{}
		loggers[l] = w
	}
	if w.waiting == maxWaiting {
		w.lost++
		return
	}
	w.waiting++
	go w.write(ctx, l, r)
}

// write writes a line that waits, and says how many were lost meanwhile.
func (w *lines) write(ctx context.Context, l *slog.Logger, r slog.Record) {
	_ = l.Handler().Handle(ctx, r) // as a Logger does
	mu.Lock()
	defer mu.Unlock()
	for w.lost > 0 {
		n := w.lost
		w.lost = 0
		mu.Unlock()
		l.Warn("rdmanet: lines of the log were lost, its handler is slow", "lines", n)
		mu.Lock()
	}
	if w.waiting--; w.waiting == 0 {
		delete(loggers, l)
	}
}
