// Package asynclog writes lines of a log where nobody may wait for that: under a lock, or on a goroutine
// that connections wait for. A handler may do anything, as be slow, or write to a connection itself.
package asynclog

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// maxWaiting bounds the lines of the process that handlers have not taken: further ones are lost.
const maxWaiting = 256

var waiting, lost atomic.Int64

// Log has l write a line on a goroutine of its own. Lines that come at the same time may change places, and
// where handlers are too slow some are lost, which a later one says. It may be called concurrently.
func Log(l *slog.Logger, level slog.Level, message string, args ...any) {
	ctx := context.Background()
	if !l.Enabled(ctx, level) {
		return
	}
	if waiting.Add(1) > maxWaiting {
		waiting.Add(-1)
		lost.Add(1)
		return
	}
	go func() {
		defer waiting.Add(-1)
		l.Log(ctx, level, message, args...)
		if n := lost.Swap(0); n > 0 {
			l.Warn("rdmanet: lines of the log were lost, its handler is slow", "lines", n)
		}
	}()
}
