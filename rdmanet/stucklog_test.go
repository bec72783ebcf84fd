package rdmanet

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
)

// stuckHandler takes no line before it is let go.
type stuckHandler struct {
	slog.Handler
	let chan struct{}
}

func (h stuckHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h stuckHandler) Handle(context.Context, slog.Record) error {
	<-h.let
	return nil
}

// TestStuckLogHandler: the goroutine of the driver that tells a listener of the end of its device does not wait
// for a handler.
func TestStuckLogHandler(t *testing.T) {
	onSoftware(t)
	h := stuckHandler{slog.DiscardHandler, make(chan struct{})}
	l, err := (&ListenConfig{Logger: slog.New(h)}).listen(context.Background(), "tcp", loopbackAddr)
	require.NoError(t, err)
	require.NoError(t, l.id.Close()) // as it is then
	within(t, patience, "the event", func() {
		l.event(&cm.Event{Type: cm.DeviceRemoval, ID: l.id, Err: errors.New("removed")})
	})
	close(h.let)
	_ = l.Close()
}
