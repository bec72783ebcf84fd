package event

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestAsync(t *testing.T) {
	var a Async
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	_, err := a.Next(ctx)
	require.ErrorIs(t, err, why)

	got := make(chan verbs.AsyncEvent)
	go func() {
		ev, _ := a.Next(context.Background())
		got <- ev
	}()
	a.Raise(verbs.AsyncEvent{Type: verbs.EventSQDrained})
	require.Equal(t, verbs.EventSQDrained, (<-got).Type)

	// The oldest make room.
	for i := range maxAsync + 10 {
		a.Raise(verbs.AsyncEvent{Type: verbs.EventPortErr, Port: uint8(i)})
	}
	ev, err := a.Next(context.Background())
	require.NoError(t, err)
	require.EqualValues(t, 10, ev.Port)
	a.Raise(verbs.AsyncEvent{Type: verbs.EventSQDrained})
	a.Forget(func(ev verbs.AsyncEvent) bool { return ev.Type == verbs.EventPortErr })
	ev, err = a.Next(context.Background())
	require.NoError(t, err)
	require.Equal(t, verbs.EventSQDrained, ev.Type)

	done := make(chan error)
	go func() {
		_, err := a.Next(context.Background())
		done <- err
	}()
	a.Close()
	require.ErrorIs(t, <-done, verbs.ErrClosed)
	a.Raise(verbs.AsyncEvent{})
	_, err = a.Next(context.Background())
	require.ErrorIs(t, err, verbs.ErrClosed)
}
