package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/link"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// counted is what the process counted for the device of c since before.
func counted(t *testing.T, device string, before Stats) (d DeviceStats) {
	t.Helper()
	d = deviceStats(ReadStats(), device)
	was := deviceStats(before, device)
	d.BytesRead -= was.BytesRead
	d.BytesWritten -= was.BytesWritten
	d.Dialled.Total -= was.Dialled.Total
	d.Accepted.Total -= was.Accepted.Total
	d.CreditStalls -= was.CreditStalls
	d.CreditStallTime -= was.CreditStallTime
	d.RingsGrown -= was.RingsGrown
	d.Errors = since(d.Errors, was.Errors)
	d.FailedWRs = since(d.FailedWRs, was.FailedWRs)
	return d
}

func deviceStats(s Stats, device string) DeviceStats {
	for _, d := range s.Devices {
		if d.Device == device {
			return d
		}
	}
	return DeviceStats{}
}

func since(now, before map[string]uint64) map[string]uint64 {
	var more map[string]uint64
	for k, n := range now {
		if n -= before[k]; n > 0 {
			if more == nil {
				more = map[string]uint64{}
			}
			more[k] = n
		}
	}
	return more
}

func TestReadStats(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		waitForNone(t)
		settled(t) // no lane is torn down meanwhile
		before := ReadStats()
		fl.dialer.ReadBuffer, fl.listen.ReadBuffer = MinReadBuffer, MinReadBuffer // rings that do not grow meanwhile
		client, server, err := dialPair(&fl.dialer, &fl.listen)
		require.NoError(t, err)
		defer client.Close()
		defer server.Close()
		device := client.Device()
		write(t, client, 1000)
		readFull(t, server, 1000)
		write(t, server, 500)
		readFull(t, client, 500)
		open := func() {
			t.Helper()
			d := counted(t, device, before)
			require.Equal(t, ConnCount{Open: 1, Total: 1}, d.Dialled)
			require.Equal(t, ConnCount{Open: 1, Total: 1}, d.Accepted)
			require.EqualValues(t, 1500, d.BytesRead)
			require.EqualValues(t, 1500, d.BytesWritten)
			require.Equal(t, client.Stats().ReadBuffer+server.Stats().ReadBuffer, d.ReadBuffer)
			require.Equal(t, client.Stats().WriteBuffer+server.Stats().WriteBuffer, d.WriteBuffer)
		}
		open()
		s := ReadStats()
		require.Equal(t, MemoryInUse(), s.RegisteredBytes)
		require.Positive(t, s.RegisteredBytes)
		require.Equal(t, SetMemoryLimit(-1), s.RegisteredLimit)
		require.Equal(t, before.Listening.Established+1, s.Listening.Established)
		require.Equal(t, before.Listening.Accepted+1, s.Listening.Accepted)
		require.Zero(t, s.Listeners, "dialPair has closed its listener")

		require.NoError(t, client.Close())
		readEOF(t, server)
		require.NoError(t, server.Close())
		<-client.done()
		<-server.done()
		d := counted(t, device, before)
		require.Equal(t, ConnCount{Total: 1}, d.Dialled)
		require.Equal(t, ConnCount{Total: 1}, d.Accepted)
		require.EqualValues(t, 1500, d.BytesRead, "what a closed connection counted is kept")
		require.EqualValues(t, 1500, d.BytesWritten)
		require.Zero(t, d.ReadBuffer)
		require.Zero(t, d.WriteBuffer)
		require.Empty(t, d.Errors, "an orderly close is no failure")
		require.Empty(t, d.FailedWRs)
	})
}

func TestReadStatsCountsStalls(t *testing.T) {
	waitForNone(t)
	before := ReadStats()
	client, server := flavour{dialer: Dialer{ReadBuffer: MinReadBuffer}, listen: ListenConfig{ReadBuffer: MinReadBuffer}}.pair(t)
	done := make(chan error, 1)
	go func() {
		_, err := client.Write(make([]byte, 4*MinReadBuffer))
		done <- err
	}()
	readFull(t, server, 4*MinReadBuffer)
	require.NoError(t, <-done)
	d := counted(t, client.Device(), before)
	require.Equal(t, client.Stats().CreditStalls, d.CreditStalls)
	require.Equal(t, client.Stats().CreditStallTime, d.CreditStallTime)
	require.Positive(t, d.CreditStalls)
}

// TestStallCountsWhileItLasts: an alarm on the share of time that Writes wait must fire for
// one that waits for ever.
func TestStallCountsWhileItLasts(t *testing.T) {
	waitForNone(t)
	before := ReadStats()
	client, server := flavour{dialer: Dialer{ReadBuffer: MinReadBuffer}, listen: ListenConfig{ReadBuffer: MinReadBuffer}}.pair(t)
	done := begun(func() error {
		_, err := client.Write(make([]byte, 4*MinReadBuffer))
		return err
	})
	var first time.Duration
	require.Eventually(t, func() bool {
		first = client.Stats().CreditStallTime
		return first > 0
	}, patience, time.Millisecond)
	require.Eventually(t, func() bool { return client.Stats().CreditStallTime >= first+20*time.Millisecond }, patience, time.Millisecond)
	d := counted(t, client.Device(), before)
	require.EqualValues(t, 1, d.CreditStalls, "nobody reads: it waits")
	require.GreaterOrEqual(t, d.CreditStallTime, first)
	readFull(t, server, 4*MinReadBuffer)
	require.NoError(t, <-done)
	s := client.Stats()
	require.GreaterOrEqual(t, s.CreditStallTime, d.CreditStallTime, "it never goes back")
	var again ConnStats
	require.Eventually(t, func() bool { // once the last credit has come in
		again = client.Stats()
		return again == client.Stats()
	}, patience, time.Millisecond, "and all stand when nobody waits")
	require.Equal(t, s.CreditStallTime, again.CreditStallTime)
	require.Equal(t, s.CreditStalls, again.CreditStalls)
}

func TestReadStatsCountsFailures(t *testing.T) {
	t.Run("reset", func(t *testing.T) {
		waitForNone(t)
		before := ReadStats()
		client, server := pair(t)
		require.NoError(t, server.SetLinger(0))
		require.NoError(t, server.Close())
		_, err := client.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		_, err = client.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		require.Equal(t, map[string]uint64{"ECONNRESET": 1}, counted(t, client.Device(), before).Errors)
	})
}

// TestReadStatsCountsFailuresOfLanes: how the lane has ended that carried a connection.
func TestReadStatsCountsFailuresOfLanes(t *testing.T) {
	for _, tt := range []struct {
		cause         error
		errno, status string
	}{
		{&link.Error{Errno: syscall.ECONNABORTED, Err: fmt.Errorf("%w: %w", ErrProtocol, verbs.WCLocLenErr)}, "ECONNABORTED", "LOC_LEN_ERR"},
		{&link.Error{Errno: syscall.ETIMEDOUT, Err: errors.Join(ErrPeerGone, verbs.WCRetryExcErr)}, "ETIMEDOUT", "RETRY_EXC_ERR"},
		{&link.Error{Errno: syscall.ECONNRESET, Err: errors.Join(ErrPeerGone, verbs.WCStatus(200))}, "ECONNRESET", otherError},
		{&link.Error{Errno: syscall.ECONNRESET, Err: ErrPeerGone}, "ECONNRESET", "WR_FLUSH_ERR"},
		{&link.Error{Errno: syscall.ENODEV, Err: errBroken}, "ENODEV", ""},
		{syscall.ECONNRESET, "ECONNRESET", ""},
		{syscall.EPIPE, "", ""},
		{io.EOF, "", ""},
		{net.ErrClosed, "", ""},
	} {
		before := ReadStats()
		client, _ := pair(t)
		l := client.stream
		for range 2 {
			require.Equal(t, tt.cause, l.cause(tt.cause))
		}
		d := counted(t, client.Device(), before)
		once := func(name string) map[string]uint64 {
			if name == "" {
				return nil
			}
			return map[string]uint64{name: 1}
		}
		require.Equal(t, once(tt.errno), d.Errors)
		require.Equal(t, once(tt.status), d.FailedWRs)
	}
}

// TestUnseenFailureIsCounted: a connection that was reset counts, though no call has seen it.
func TestUnseenFailureIsCounted(t *testing.T) {
	before := ReadStats()
	client, server := pair(t)
	require.NoError(t, server.SetLinger(0))
	require.NoError(t, server.Close())
	require.Eventually(t, func() bool { return client.info().State == StateFailed }, patience, time.Millisecond)
	require.NoError(t, client.Close())
	torn(t, client)
	require.Equal(t, map[string]uint64{"ECONNRESET": 1}, counted(t, client.Device(), before).Errors)
}

func TestReadStatsCountsDialErrors(t *testing.T) {
	before := ReadStats().DialErrors
	l, err := Listen("rdma", testAddr())
	require.NoError(t, err)
	nobody := l.Addr().String()
	require.NoError(t, l.Close())
	_, err = Dial("rdma", nobody)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = new(Dialer).DialContext(canceled, "rdma", nobody)
	require.ErrorIs(t, err, context.Canceled)
	expired, cancel := context.WithTimeout(context.Background(), 0)
	defer cancel()
	_, err = new(Dialer).DialContext(expired, "rdma", nobody)
	require.Error(t, err)
	_, err = Dial("nonsense", nobody)
	require.ErrorAs(t, err, new(net.UnknownNetworkError))
	require.Equal(t, map[string]uint64{"ECONNREFUSED": 1, "canceled": 1, "timeout": 1, otherError: 1}, since(ReadStats().DialErrors, before))
}

func TestReadStatsOfListeners(t *testing.T) {
	require.Eventually(t, func() bool { // the listeners of other tests count nothing more
		live.mu.Lock()
		leaving := slices.Collect(maps.Keys(live.leaving))
		live.mu.Unlock()
		return !slices.ContainsFunc(leaving, func(l *Listener) bool { return l.links != nil && len(l.links.Lanes()) > 0 })
	}, patience, time.Millisecond)
	before := ReadStats()
	l, err := new(ListenConfig).listen(context.Background(), "rdma", testAddr())
	require.NoError(t, err)
	c, err := Dial("rdma", l.Addr().String())
	require.NoError(t, err)
	require.Eventually(t, func() bool { return l.Stats().Pending == 1 }, patience, time.Millisecond)
	s := ReadStats()
	require.Equal(t, before.Listeners+1, s.Listeners)
	require.Equal(t, 1, s.Listening.Pending)
	require.Equal(t, before.Listening.Requests+1, s.Listening.Requests)
	infos := Listeners()
	require.Len(t, infos, 1)
	require.Equal(t, l.Addr().String(), infos[0].Addr.String())
	require.Equal(t, 1, infos[0].Pending)
	require.Equal(t, DefaultBacklog(), infos[0].Backlog)
	require.Equal(t, "rdma", infos[0].Network)
	require.NoError(t, l.Close())
	require.NoError(t, c.Close())
	s = ReadStats()
	require.Zero(t, s.Listeners)
	require.Zero(t, s.Listening.Pending)
	require.Equal(t, before.Listening.Requests+1, s.Listening.Requests, "what a closed listener counted is kept")
	require.Equal(t, before.Listening.Established+1, s.Listening.Established)
}

// TestReadStatsMonotonic reads statistics while connections come and go: no
// connection may be counted twice, or be missed between its life and the sums.
func TestReadStatsMonotonic(t *testing.T) {
	const rounds, size = 60, 100
	device := "soft0"
	if name := cm.DefaultDevice(); name != "" {
		device = name
	}
	waitForNone(t)
	before := ReadStats()
	l, err := Listen("rdma", testAddr())
	require.NoError(t, err)
	defer l.Close()
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			var last uint64
			for {
				s := deviceStats(ReadStats(), device)
				if s.BytesRead < last || s.BytesRead > deviceStats(before, device).BytesRead+2*rounds*size {
					t.Errorf("bytes read went from %d to %d", last, s.BytesRead)
				}
				last = s.BytesRead
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond): // leaves the processors to the connections
				}
			}
		})
	}
	for range rounds {
		c, err := Dial("rdma", l.Addr().String())
		require.NoError(t, err)
		s, err := l.Accept()
		require.NoError(t, err)
		_, err = c.Write(make([]byte, size))
		require.NoError(t, err)
		readFull(t, s, size)
		_, err = s.Write(make([]byte, size))
		require.NoError(t, err)
		readFull(t, c, size)
		require.NoError(t, c.Close())
		require.NoError(t, s.Close())
		<-c.(*Conn).done()
		<-s.(*Conn).done()
	}
	close(stop)
	readers.Wait()
	d := counted(t, device, before)
	if testAddr() == loopbackAddr {
		require.EqualValues(t, 2*rounds*size, d.BytesRead)
		require.Equal(t, uint64(rounds), d.Dialled.Total)
	}
	require.Empty(t, Conns())
}

func TestRegistryAllocatesNothing(t *testing.T) {
	client, _ := pair(t)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		live.remove(client.stream)
		live.add(client.stream, false)
	}))
}

func readEOF(t *testing.T, c net.Conn) {
	t.Helper()
	_, err := c.Read(make([]byte, 1))
	require.Equal(t, io.EOF, err)
}

func write(t *testing.T, c net.Conn, n int) {
	t.Helper()
	_, err := c.Write(make([]byte, n))
	require.NoError(t, err)
}
