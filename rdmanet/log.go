package rdmanet

import (
	"context"
	"log/slog"
)

// The library logs what went wrong without an error being returned, and nothing that
// happens with every message. The keys are device, local and remote for a connection,
// listener and remote for a handshake, and err; docs/OPERATIONS.md lists the lines.

// log logs about the connection. It may be called with locks held: a handler that
// writes to this very connection must not wait for them, so it runs on a goroutine of
// its own.
func (e *endpoint) log(level slog.Level, msg string, args ...any) {
	ctx := context.Background()
	if !e.logger.Enabled(ctx, level) {
		return
	}
	go func() {
		about := []any{"device", e.device, "local", e.id.LocalAddr(), "remote", e.id.RemoteAddr()}
		e.logger.Log(ctx, level, msg, append(about, args...)...)
	}()
}
