package rdmanet

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A dial whose time is up leaves the calls of a device alone that do not return, and what they
// come to is undone.
func TestDialLeavesTheDevice(t *testing.T) {
	why := errors.New("of the device")
	for name, c := range map[string]struct {
		takes    time.Duration
		err      error
		wantTime time.Duration
		want     error
		undone   bool
	}{
		"in time":                  {takes: time.Second, wantTime: time.Second},
		"fails in time":            {takes: time.Second, err: why, wantTime: time.Second, want: why},
		"ends with the dial":       {takes: 5*time.Second + leaveAfter/2, err: why, wantTime: 5*time.Second + leaveAfter/2, want: why},
		"fails when nobody waits":  {takes: time.Minute, err: why, wantTime: 5*time.Second + leaveAfter, want: context.DeadlineExceeded},
		"there when nobody waits":  {takes: time.Minute, wantTime: 5*time.Second + leaveAfter, want: context.DeadlineExceeded, undone: true},
		"there as the dial leaves": {takes: 5*time.Second + leaveAfter - 1, wantTime: 5*time.Second + leaveAfter - 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				began, undone := time.Now(), 0
				got, err := leaving(ctx, func() (int, error) {
					time.Sleep(c.takes)
					return 17, c.err
				}, func(n int) { undone += n })
				require.Equal(t, c.wantTime, time.Since(began))
				require.ErrorIs(t, err, c.want)
				if c.want == nil {
					require.Equal(t, 17, got)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				require.Equal(t, c.undone, undone == 17)
			})
		})
	}
}

// silentVar is an address on the device's network that takes packets and answers none.
const silentVar = "RDMANET_TEST_SILENT"

// A dial to a host that says nothing keeps its time, and holds nobody else up: on soft-iWARP
// rdma_connect and ibv_destroy_qp wait for TCP meanwhile.
func TestDialSilentHost(t *testing.T) {
	silent := os.Getenv(silentVar)
	if silent == "" {
		t.Skip("no host that says nothing: " + silentVar + " is the address of one")
	}
	const (
		crowd  = 40 // more than calls that may wait for TCP at a time
		waited = 10 * time.Second
	)
	l, err := Listen("rdma", testAddr())
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, c); _ = c.Close() }()
		}
	}()

	in := MemoryInUse()
	type end struct {
		err  error
		took time.Duration
	}
	ends := make(chan end, crowd)
	for range crowd {
		go func() {
			began := time.Now()
			_, err := (&Dialer{Timeout: time.Second, Logger: quiet}).Dial("rdma", silent)
			ends <- end{err, time.Since(began)}
		}()
	}
	time.Sleep(500 * time.Millisecond) // so that they have begun
	c, err := (&Dialer{Timeout: waited, Logger: quiet}).Dial("rdma", l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, c.Close())
	var longest time.Duration
	for range crowd {
		e := <-ends
		var timeout net.Error
		require.ErrorAs(t, e.err, &timeout)
		require.True(t, timeout.Timeout(), "%v", e.err)
		longest = max(longest, e.took)
	}
	t.Logf("a timeout of a second was kept but for %v", longest-time.Second)
	require.Less(t, longest, waited)
	require.Eventually(t, func() bool { return MemoryInUse() <= in }, 2*time.Minute, 100*time.Millisecond, "given back")
}
