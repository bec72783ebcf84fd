package verbstest

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// pause gives way in the n-th turn of a polling loop: at first to other
// goroutines, then to other processes.
func pause(n int) {
	if n < 256 {
		runtime.Gosched()
		return
	}
	time.Sleep(50 * time.Microsecond)
}

// pollFor polls exactly n completions and no more, within a bound.
func pollFor(cq verbs.CQ, n int, within time.Duration) ([]verbs.WC, error) {
	got := make([]verbs.WC, n)
	have := 0
	deadline := time.Now().Add(within)
	for turn := 0; have < n; turn++ {
		k, err := cq.Poll(got[have:])
		if err != nil {
			return got[:have], err
		}
		have += k
		if k > 0 {
			turn = 0
			continue
		}
		if time.Now().After(deadline) {
			return got[:have], fmt.Errorf("%d of %d completions after %v: %+v", have, n, within, got[:have])
		}
		pause(turn)
	}
	return got, nil
}

func collect(t testing.TB, cq verbs.CQ, n int, within time.Duration) []verbs.WC {
	t.Helper()
	got, err := pollFor(cq, n, within)
	require.NoError(t, err)
	return got
}

// eventually polls a condition. An argument that is a func() verbs.QPState is
// called when the message is made.
func eventually(t testing.TB, within time.Duration, cond func() bool, format string, args ...any) {
	t.Helper()
	deadline := time.Now().Add(within)
	for turn := 0; !cond(); turn++ {
		if time.Now().After(deadline) {
			for i, a := range args {
				if f, ok := a.(func() verbs.QPState); ok {
					args[i] = f()
				}
			}
			t.Fatalf("after %v: "+format, append([]any{within}, args...)...)
		}
		pause(turn)
	}
}

// finish waits for the goroutines of a test, each of which sends one error or nil.
func finish(t testing.TB, errs <-chan error, n int, within time.Duration) {
	t.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	for range n {
		select {
		case err := <-errs:
			require.NoError(t, err)
		case <-timer.C:
			t.Fatalf("the goroutines of the test did not end within %v", within)
		}
	}
}

// expect waits for one successful completion; it may be called from any goroutine.
func expect(e *env, cq verbs.CQ, id uint64, op verbs.WCOpcode) error {
	wcs, err := pollFor(cq, 1, e.cfg.Timeout)
	if err != nil {
		return fmt.Errorf("waiting for %v %d: %w", op, id, err)
	}
	return check(wcs[0], id, op)
}

// check is requireOK for any goroutine.
func check(wc verbs.WC, id uint64, op verbs.WCOpcode) error {
	switch {
	case wc.Status != verbs.WCSuccess:
		return fmt.Errorf("request %d instead of %v %d: %w", wc.WRID, op, id, wc.Status)
	case wc.Opcode != op:
		return fmt.Errorf("request %d completed as %v, not as %v %d", wc.WRID, wc.Opcode, op, id)
	case wc.WRID != id:
		return unexpected(op.String(), wc.WRID, id)
	}
	return nil
}

func unexpected(what string, got, want uint64) error {
	return fmt.Errorf("%s %d came where %d was due", what, got, want)
}

// sameBytes requires that memory holds what it should, and says where it does not.
func sameBytes(t testing.TB, want, got []byte, what ...any) {
	t.Helper()
	if bytes.Equal(want, got) {
		return
	}
	if len(want) != len(got) {
		t.Fatalf("%s: %d bytes instead of %d", describe(what), len(got), len(want))
	}
	for i := range want {
		if want[i] != got[i] {
			t.Fatalf("%s: byte %d of %d is %#x instead of %#x", describe(what), i, len(want), got[i], want[i])
		}
	}
}

// describe formats what testify calls msgAndArgs.
func describe(msgAndArgs []any) string {
	if len(msgAndArgs) == 0 {
		return "memory"
	}
	return fmt.Sprintf(fmt.Sprint(msgAndArgs[0]), msgAndArgs[1:]...)
}
