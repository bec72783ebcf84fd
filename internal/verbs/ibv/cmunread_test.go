//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"context"
	"log/slog"
	"testing"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"
)

// A messageHandler sends the messages of a log.
type messageHandler struct {
	slog.Handler
	got chan string
}

func (messageHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h messageHandler) Handle(_ context.Context, r slog.Record) error {
	h.got <- r.Message
	return nil
}

// TestUnreadEvent: that events cannot be read is logged once, and again when one has been read meanwhile.
func TestUnreadEvent(t *testing.T) {
	lines := make(chan string, 8)
	before := slog.Default()
	slog.SetDefault(slog.New(messageHandler{slog.DiscardHandler, lines}))
	defer slog.SetDefault(before)
	// What each call finds: an event or an error; the end is for the test to say.
	finds := []bool{false, false, false, true, false, false}
	over, end := make(chan struct{}), make(chan struct{})
	calls := 0
	event := &cMemory[cCMEvent](t, 1)[0]
	event.id = addressOf(&cMemory[cCMID](t, 1)[0]) // of nobody
	ch := newCMChannel(fakeVerbs(t), &librdmacm{
		getCMEvent: purego.NewCallback(func(_ uintptr, out *uintptr) uintptr {
			if calls++; calls > len(finds) {
				if calls == len(finds)+1 {
					close(over)
				}
				<-end
				return ^uintptr(0)
			}
			if !finds[calls-1] {
				return ^uintptr(0)
			}
			*out = addressOf(event)
			return 0
		}),
		ackCMEvent: purego.NewCallback(func() uintptr { return 0 }),
	})
	stop := readEvents(t, ch)
	<-over
	close(end)
	stop()
	const line = "rdmanet: an event of the connection manager could not be read"
	require.Equal(t, line, <-lines)
	require.Equal(t, line, <-lines)
	require.Empty(t, lines)
}
