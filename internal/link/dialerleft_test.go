package link

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/syncbuffer"
	"github.com/rdmanet/go-rdmanet/internal/verbs/faulty"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// TestDialerLeftMeanwhile: a dialer that has gone when its lane's QP is made was not refused, and nobody has to
// look at that.
func TestDialerLeftMeanwhile(t *testing.T) {
	needFailing(t)
	var out syncbuffer.Buffer
	b := newBed(t, Config{CM: cm.Options{Device: "failing0"}, Logger: slog.New(slog.NewTextHandler(&out, nil))})
	b.links = newBed(t, Config{CM: cm.Options{Device: "soft0"}}).links
	var once atomic.Bool
	failing.OnAcquire(func(what string) error {
		if what == faulty.CreateQP && once.CompareAndSwap(false, true) {
			return fmt.Errorf("%w: as the device finds", verbs.ErrPeerGone)
		}
		return nil
	})
	t.Cleanup(func() { failing.OnAcquire(nil) })
	converseWithOneFailure(t, b)
	require.Empty(t, out.String())
}

// TestRefusalThatFails: a dialer that has left when it was to be answered, and cannot be refused any more, is counted
// once. What Requests says meanwhile does not go down.
func TestRefusalThatFails(t *testing.T) {
	needFailing(t)
	b := newBed(t, Config{CM: cm.Options{Device: "failing0"}})
	b.links = newBed(t, Config{CM: cm.Options{Device: "soft0"}}).links
	var meanwhile atomic.Pointer[Requests]
	var once atomic.Bool
	failing.OnAcquire(func(what string) error {
		switch {
		case what == faulty.Accept && once.CompareAndSwap(false, true):
			return io.EOF
		case what == faulty.Reject:
			r := b.l.Requests()
			meanwhile.Store(&r)
			return io.EOF
		}
		return nil
	})
	t.Cleanup(func() { failing.OnAcquire(nil) })
	converseWithOneFailure(t, b)
	require.Zero(t, *meanwhile.Load())
}

// converseWithOneFailure dials until it has a conversation, and waits until one request counts as failed, and nothing
// else does.
func converseWithOneFailure(t *testing.T, b *bed) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- converse(b.links, b.l) }()
	go serveEchoes(b.l)
	within(t, "the request", func() {
		require.Eventually(t, func() bool { return b.l.Requests() == Requests{Failed: 1} }, patience, time.Millisecond)
	})
	within(t, "the dial", func() { <-done })
}

// TestCloseMeanwhile: a dialer whose answer fails because the Listener is closed is refused for that, and nobody has
// to look at it.
func TestCloseMeanwhile(t *testing.T) {
	needFailing(t)
	var out syncbuffer.Buffer
	b := newBed(t, Config{CM: cm.Options{Device: "failing0"}, Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	b.links = newBed(t, Config{CM: cm.Options{Device: "soft0"}}).links
	var once atomic.Bool
	failing.OnAcquire(func(what string) error {
		if what == faulty.Accept && once.CompareAndSwap(false, true) {
			return errors.Join(b.l.Close(), verbs.ErrState)
		}
		return nil
	})
	t.Cleanup(func() { failing.OnAcquire(nil) })
	within(t, "the dial", func() {
		_, err := b.links.Dial(b.ctx(), Target{Dst: b.l.Addr()})
		require.Error(t, err)
	})
	within(t, "the request", func() {
		require.Eventually(t, func() bool { r := b.l.Requests(); return r.Refused+r.Failed == 1 }, patience, time.Millisecond)
	})
	refused := regexp.MustCompile(`level=(\w+) msg="link: no lane for a dialer" .*err="(.*)"`)
	require.Eventually(t, func() bool { return refused.MatchString(out.String()) }, patience, time.Millisecond, "%s", &out)
	require.Equal(t, []string{"DEBUG", net.ErrClosed.Error()}, refused.FindStringSubmatch(out.String())[1:])
}
