package rdmanet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/leaktest"
)

func init() {
	roles["few descriptors"] = reporting(fewDescriptors)
	roles["no memory"] = reporting(noMemory)
}

// reporting is a role that tells its error on standard error.
func reporting(f func() error) func() int {
	return func() int {
		if err := f(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
}

// runAs runs a role in a process of its own that may not lock more memory than its
// limit, even as root.
func runAs(t *testing.T, role string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVar+"="+role)
	var out []byte
	var err error
	done := make(chan struct{})
	go func() { // on a thread that is thrown away: what it gives up it cannot have back
		defer close(done)
		runtime.LockOSThread()
		if err = unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_IPC_LOCK, 0, 0, 0); err == nil || errors.Is(err, unix.EPERM) {
			out, err = cmd.CombinedOutput()
		}
	}()
	<-done
	require.NoError(t, err, "%s", out)
}

// TestFewDescriptors dials with fewer and fewer descriptors left.
func TestFewDescriptors(t *testing.T) { runAs(t, "few descriptors") }

// Limit leaves the process so many descriptors that it does not use yet, or below 0 as
// many as it had.
func (r *Remote) Limit(left int, _ *int) error {
	if r.unlimit != nil {
		r.unlimit()
		r.unlimit = nil
	}
	if left < 0 {
		return nil
	}
	var err error
	r.unlimit, err = setLimit(syscall.RLIMIT_NOFILE, limitLeaving(left))
	return err
}

// TestFewDescriptorsToAccept dials a process that has fewer and fewer descriptors left
// for the connection. It must not leak any, and serve who comes when it has some again.
func TestFewDescriptorsToAccept(t *testing.T) {
	r := startRemote(t)
	at := call[string](r, "Listen", RemoteListen{})
	d := Dialer{Timeout: slowly(250 * time.Millisecond)}
	failed := 0
	for left := range 14 {
		call[int](r, "Limit", left)
		c, err := d.dial(t.Context(), "rdma", at)
		if err != nil {
			failed++
			var op *net.OpError
			require.ErrorAs(t, err, &op, "with %d descriptors", left)
		} else {
			requireClosed(t, c)
		}
		call[int](r, "Limit", -1)
	}
	require.Positive(t, failed)
	d.Timeout = patience // the listener may just pause
	c, err := d.dial(t.Context(), "rdma", at)
	require.NoError(t, err)
	requireClosed(t, c)
}

// TestNoMemory dials where the system gives no memory that a device may use.
func TestNoMemory(t *testing.T) { runAs(t, "no memory") }

// checkFailure says what is wrong with the error of a dial under a limit.
func checkFailure(err error, hint string) error {
	var op *net.OpError
	switch {
	case !errors.As(err, &op) || op != err: //nolint:errorlint // identity is the point
		return fmt.Errorf("not a *net.OpError: %T: %w", err, err)
	case op.Timeout(), errors.Is(err, syscall.ECONNRESET), errors.Is(err, cm.ErrRejected):
		// It is the listener, here in the same process, that lacks something.
	case !strings.Contains(err.Error(), hint):
		return fmt.Errorf("does not say what to do (%s): %w", hint, err)
	}
	return nil
}

func setLimit(which int, soft uint64) (restore func(), err error) {
	var old syscall.Rlimit
	if err := syscall.Getrlimit(which, &old); err != nil {
		return nil, err
	}
	if err := syscall.Setrlimit(which, &syscall.Rlimit{Cur: soft, Max: old.Max}); err != nil {
		return nil, err
	}
	return func() { _ = syscall.Setrlimit(which, &old) }, nil
}

// limitLeaving is the RLIMIT_NOFILE with which n more descriptors can be opened:
// those below it that are free.
func limitLeaving(n int) (limit uint64) {
	open := leaktest.OpenFiles()
	for ; n > 0; limit++ {
		if _, used := open[strconv.FormatUint(limit, 10)]; !used {
			n--
		}
	}
	return limit
}

// leakedSince waits for what is torn down in the background, or kept for the next
// connection for a moment.
func leakedSince(before leaktest.Snapshot) error {
	for began := time.Now(); time.Since(began) < patience; {
		if before.LeakedFiles() == "" && MemoryInUse() == 0 {
			return nil
		}
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
	}
	return fmt.Errorf("leaked %d bytes and %s", MemoryInUse(), before.LeakedFiles())
}

func fewDescriptors() error {
	lc, d := ListenConfig{HandshakeTimeout: time.Second}, Dialer{Timeout: slowly(150 * time.Millisecond)}
	openDevices()
	l, err := Listen("rdma", testAddr())
	if err != nil {
		return err
	}
	defer l.Close()
	before := leaktest.Take()
	failed := 0
	most := 40
	tried, step := 0, 4 // each takes a while, until all is closed
	if os.Getenv("RDMANET_TEST_ADDR") != "" {
		most, step = 20, 2 // a device of its own kernel takes fewer
	}
	if os.Getenv(longVar) != "" {
		step = 1
	}
	for left := rand.IntN(step); left < most; left += step {
		tried++
		restore, err := setLimit(syscall.RLIMIT_NOFILE, limitLeaving(left))
		if err != nil {
			return err
		}
		c, s, err := dialPair(&d, &lc)
		restore()
		if err == nil {
			_ = errors.Join(c.Close(), s.Close())
		} else {
			failed++
			if err := checkFailure(err, "RLIMIT_NOFILE"); err != nil {
				return fmt.Errorf("with %d descriptors: %w", left, err)
			}
		}
		if err := leakedSince(before); err != nil {
			return fmt.Errorf("with %d descriptors: %w", left, err)
		}
	}
	if failed < 2 {
		return fmt.Errorf("only %d dials of %d failed", failed, tried)
	}
	d.Timeout = patience // the listener may just pause
	c, s, err := dialPair(&d, &lc)
	if err != nil {
		return fmt.Errorf("with descriptors again: %w", err)
	}
	return errors.Join(c.Close(), s.Close())
}

// limitMemory leaves a page of what the device under test makes its rings of:
// shared memory, which is files, or memory that is locked.
func limitMemory(shared bool) (restore func(), err error) {
	if !shared {
		return setLimit(unix.RLIMIT_MEMLOCK, 4096)
	}
	signal.Ignore(syscall.SIGXFSZ)
	return setLimit(syscall.RLIMIT_FSIZE, 4096)
}

// noMemory dials with limited memory, and then again without the limit.
func noMemory() error {
	l, err := Listen("rdma", testAddr())
	if err != nil {
		return err
	}
	defer l.Close()
	openDevices()
	before := leaktest.Take()
	c, s, err := dialPair(new(Dialer), new(ListenConfig))
	if err != nil {
		return err
	}
	if err := errors.Join(c.Close(), s.Close()); err != nil {
		return err
	}
	<-c.done()
	<-s.done()
	restore, err := limitMemory(os.Getenv("RDMANET_TEST_ADDR") == "")
	if err != nil {
		return err
	}
	_, err = Dial("rdma", l.Addr().String())
	restore()
	if err == nil {
		return errors.New("a connection without memory")
	}
	if err := checkFailure(err, "memory"); err != nil {
		return err
	}
	if !errors.Is(err, ErrNoMemory) {
		return fmt.Errorf("not ErrNoMemory: %w", err)
	}
	if err := leakedSince(before); err != nil {
		return err
	}
	again, err := Dial("rdma", l.Addr().String())
	if err != nil {
		return fmt.Errorf("with memory again: %w", err)
	}
	return again.Close()
}
