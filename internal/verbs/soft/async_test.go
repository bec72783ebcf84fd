//go:build linux && (amd64 || arm64)

package soft

import (
	"context"
	"errors"
	"testing"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/stretchr/testify/require"
)

func TestAsyncQueue(t *testing.T) {
	var a asyncQueue
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	_, err := a.next(ctx)
	require.ErrorIs(t, err, why)

	got := make(chan verbs.AsyncEvent)
	go func() {
		ev, _ := a.next(context.Background())
		got <- ev
	}()
	a.raise(verbs.AsyncEvent{Type: verbs.EventSQDrained})
	require.Equal(t, verbs.EventSQDrained, (<-got).Type)

	// The oldest make room.
	for i := range maxAsync + 10 {
		a.raise(verbs.AsyncEvent{Type: verbs.EventPortErr, Port: uint8(i)})
	}
	ev, err := a.next(context.Background())
	require.NoError(t, err)
	require.EqualValues(t, 10, ev.Port)
	a.raise(verbs.AsyncEvent{Type: verbs.EventSQDrained})
	a.forget(func(ev verbs.AsyncEvent) bool { return ev.Type == verbs.EventPortErr })
	ev, err = a.next(context.Background())
	require.NoError(t, err)
	require.Equal(t, verbs.EventSQDrained, ev.Type)

	done := make(chan error)
	go func() {
		_, err := a.next(context.Background())
		done <- err
	}()
	a.close()
	require.ErrorIs(t, <-done, verbs.ErrClosed)
	a.raise(verbs.AsyncEvent{})
	_, err = a.next(context.Background())
	require.ErrorIs(t, err, verbs.ErrClosed)
}
