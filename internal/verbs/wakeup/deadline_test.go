package wakeup

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// file is a file's deadline.
type file struct {
	at     time.Time
	closed bool
}

func (f *file) set(t time.Time) error {
	if f.closed {
		return os.ErrClosed
	}
	f.at = t
	return nil
}

func TestWake(t *testing.T) {
	var f file
	var d Deadline
	d.Init(f.set)
	at := time.Unix(1000, 0)
	require.NoError(t, d.SetDeadline(at))

	d.Wake()
	require.Equal(t, at, f.at, "nobody waits")
	require.False(t, d.Woken())

	d.Begin()
	d.Wake()
	require.Equal(t, Past, f.at)
	d.Wake()
	require.True(t, d.Woken())
	require.Equal(t, at, f.at)
	require.False(t, d.Woken(), "it was told already")
	require.Equal(t, at, f.at)
	d.End()
}

// A deadline that is set between Wake and Woken is the application's all the same.
func TestSetDeadlineWhenWoken(t *testing.T) {
	var f file
	var d Deadline
	d.Init(f.set)
	d.Begin()
	d.Wake()
	at := time.Unix(2000, 0)
	require.NoError(t, d.SetDeadline(at))
	require.Equal(t, Past, f.at, "the wait has not ended")
	require.True(t, d.Woken())
	require.Equal(t, at, f.at)
}

// A Wake too late for one wait is told in the next.
func TestWokenLate(t *testing.T) {
	var f file
	var d Deadline
	d.Init(f.set)
	d.Begin()
	d.Wake()
	d.End()
	require.Equal(t, Past, f.at)
	d.Begin()
	require.True(t, d.Woken())
	require.Zero(t, f.at)
	d.End()
}

func TestClosed(t *testing.T) {
	f := file{closed: true}
	var d Deadline
	d.Init(f.set)
	require.ErrorIs(t, d.SetDeadline(time.Unix(1000, 0)), os.ErrClosed)
	d.Begin()
	d.Wake()
	require.True(t, d.Woken())
	d.End()
}

// TestPoller has a reader of a pipe woken again and again, between other things by deadlines of the
// application: every Wake has it try once more, and its deadline ends the wait.
func TestPoller(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	raw, err := r.SyscallConn()
	require.NoError(t, err)
	var d Deadline
	d.Init(r.SetReadDeadline)
	tried, over := make(chan struct{}), make(chan error, 1)
	go func() {
		wait := func() error { return raw.Read(func(uintptr) bool { tried <- struct{}{}; return false }) }
		d.Begin()
		err := wait()
		for err != nil && d.Woken() {
			err = wait()
		}
		d.End()
		over <- Error(err)
	}()
	<-tried
	for range 100 {
		require.NoError(t, d.SetDeadline(time.Now().Add(time.Hour)))
		d.Wake()
		<-tried
	}
	require.NoError(t, d.SetDeadline(time.Now()))
	for {
		select {
		case err := <-over:
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			return
		case <-tried: // it was not asleep yet
		}
	}
}

func TestError(t *testing.T) {
	require.NoError(t, Error(nil))
	require.ErrorIs(t, Error(os.ErrDeadlineExceeded), os.ErrDeadlineExceeded)
	require.Equal(t, os.ErrClosed, Error(errors.New("use of closed file")))
}
