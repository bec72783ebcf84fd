package link

import (
	"context"
	"log/slog"
	"testing"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/stretchr/testify/require"
)

// stuckHandler is done with no line before it is let go.
type stuckHandler struct {
	slog.Handler
	lines chan string
	let   chan struct{}
}

func (h *stuckHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h *stuckHandler) Handle(_ context.Context, r slog.Record) error {
	select {
	case h.lines <- r.Message:
	default:
	}
	<-h.let
	return nil
}

// TestStuckLogHandler: a handler that is slow, as it may wait for the very client that a line is about,
// keeps nobody from a lane.
func TestStuckLogHandler(t *testing.T) {
	b, want := shortOfQPs(t, nil)
	require.NoError(t, b.l.Close())
	h := &stuckHandler{Handler: slog.DiscardHandler, lines: make(chan string, 1), let: make(chan struct{})}
	defer close(h.let)
	var err error
	b.l, err = Listen(Config{CM: cm.Options{Device: "failing0"}, Logger: slog.New(h)}, testAddr())
	require.NoError(t, err)
	defer b.l.Close()
	go serveEchoes(b.l)
	ended := make(chan error, 1)
	go func() { ended <- converse(b.links, b.l) }()
	within(t, "the line", func() { require.Equal(t, "link: no resources, dialers wait", <-h.lines) })
	want.Store(false)
	within(t, "the dial", func() { require.NoError(t, <-ended) })
}
