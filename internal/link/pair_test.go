package link

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/link/memory"
)

// patience is after how long something that does not happen never will.
const patience = 30 * time.Second

// A flavour is a way to run the same test.
type flavour struct {
	name string
	cfg  Config
}

func flavours() []flavour {
	device := cm.DefaultDevice()
	all := []flavour{
		{"default", Config{}},
		// The least of everything, so that all waits happen.
		{"smallest", Config{Receives: 16, FirstRing: 256, MaxRing: 4 << 10, Places: 1}},
	}
	if device == "" {
		iwarp, staged := cm.Options{Device: "soft0-iwarp"}, cm.Options{Device: "asynchronous0-iwarp"}
		remote, remoteIWARP := cm.Options{Device: "remote0"}, cm.Options{Device: "remote0-iwarp"}
		all = append(all, []flavour{
			{"iwarp", Config{CM: iwarp}},
			{"asynchronous", Config{CM: asynchronous()}},
			{"asynchronous-iwarp-smallest", Config{CM: staged, Receives: 16, FirstRing: 256, MaxRing: 4 << 10, Places: 2}},
			{"remote", Config{CM: remote}},
			{"remote-iwarp", Config{CM: remoteIWARP}},
			{"remote-iwarp-smallest", Config{CM: remoteIWARP, Receives: 16, FirstRing: 256, MaxRing: 4 << 10, Places: 2}},
			{"late", Config{CM: cm.Options{Device: "late0"}}},
			{"late-remote-iwarp", Config{CM: cm.Options{Device: "late0-remote-iwarp"}, Receives: 32}},
		}...)
	}
	for i := range all {
		if all[i].cfg.CM.Device == "" {
			all[i].cfg.CM.Device = device
		}
		all[i].cfg.Idle = 50 * time.Millisecond
	}
	return all
}

// networkDevice is the device that the tests are run for, or the software device that says it
// reaches other hosts.
func networkDevice() string {
	if device := cm.DefaultDevice(); device != "" {
		return device
	}
	return "remote0"
}

func eachFlavour(t *testing.T, f func(t *testing.T, cfg Config)) {
	for _, fl := range flavours() {
		t.Run(fl.name, func(t *testing.T) { f(t, fl.cfg) })
	}
}

// mostlyWaits has a test run at the same time as others that wait more than they work, after all
// that need the process for themselves. A device under test has them one by one.
func mostlyWaits(t *testing.T) {
	if cm.DefaultDevice() == "" {
		t.Parallel()
	}
}

// openDevices has the process open what it opens once for each device: that is no leak.
func openDevices() {
	for _, fl := range flavours() {
		l, err := Listen(fl.cfg, testAddr())
		if err != nil {
			continue
		}
		links, err := NewLinks(fl.cfg)
		if err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			if s, err := links.Dial(ctx, Target{Dst: l.Addr()}); err == nil {
				_ = s.Close()
			}
			cancel()
			_ = links.Close()
		}
		_ = l.Close()
	}
}

// budgetOf is a Budget of n bytes.
func budgetOf(n int64) *memory.Budget { return memory.NewBudget(func() int64 { return n }) }

// A bed is a listener and links to it, both closed when the test ends.
type bed struct {
	t     testing.TB
	l     *Listener
	links *Links
}

func newBed(t testing.TB, cfg Config) *bed {
	t.Helper()
	if os.Getenv("RDMANET_TEST_ADDR") == "" && cfg.Idle == 0 {
		cfg.Idle = 50 * time.Millisecond
	}
	if cfg.CM.Device == "" {
		cfg.CM.Device = cm.DefaultDevice()
	}
	if cfg.Lanes == 0 {
		cfg.Lanes = 1 // most tests are about one
	}
	l, err := Listen(cfg, testAddr())
	require.NoError(t, err)
	links, err := NewLinks(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = l.Close()
		_ = links.Close()
	})
	return &bed{t, l, links}
}

func (b *bed) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	b.t.Cleanup(cancel)
	return ctx
}

// dial opens a stream, which is closed when the test ends.
func (b *bed) dial() *Stream {
	b.t.Helper()
	s, err := b.links.Dial(b.ctx(), Target{Dst: b.l.Addr()})
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = s.Close() })
	return s
}

// accept takes a stream, which is closed when the test ends.
func (b *bed) accept() *Stream {
	b.t.Helper()
	s, err := b.l.Accept(b.ctx())
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = s.Close() })
	return s
}

// pair makes the two ends of a stream.
func (b *bed) pair() (client, server *Stream) {
	b.t.Helper()
	client = b.dial()
	return client, b.accept()
}

// awaitQuiet waits until the peer's end of s has been taken in.
func awaitQuiet(t testing.TB, s *stream) {
	t.Helper()
	require.Eventually(t, func() bool {
		s.e.pollNow()
		s.e.mu.Lock()
		defer s.e.mu.Unlock()
		return s.st.Quiet()
	}, patience, time.Millisecond)
}

// within fails the test if f hangs.
func within(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(patience):
		buf := make([]byte, 1<<20)
		fmt.Fprintf(os.Stderr, "%s", buf[:runtime.Stack(buf, true)])
		t.Fatalf("%s did not return within %v", what, patience)
	}
}

// all runs fs at once and waits for them.
func all(fs ...func()) {
	var wg sync.WaitGroup
	for _, f := range fs {
		wg.Go(f)
	}
	wg.Wait()
}
