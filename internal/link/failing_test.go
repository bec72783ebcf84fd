package link

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/verbs/faulty"
	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// An ailing is a stream one end of which is on a device that fails when it is asked to.
type ailing struct {
	t     *testing.T
	d     *faulty.Driver
	ill   *Stream // the end on that device
	other *Stream
}

func (a ailing) qp() *faulty.QP     { return a.ill.e.p.qp.(*faulty.QP) }
func (a ailing) recvCQ() *faulty.CQ { return a.ill.e.p.recvCQ.(*faulty.CQ) }
func (a ailing) sendCQ() *faulty.CQ { return a.ill.e.p.sendCQ.(*faulty.CQ) }

// newAiling makes a stream of which the dialer's or the listener's end is on d, and the other on
// the device under it. When the test is over nothing is left on d.
func newAiling(t *testing.T, d *faulty.Driver, under string, dialled bool) ailing {
	t.Helper()
	return newAilingOn(t, d, under, dialled, Config{})
}

// newAilingOn is newAiling with what else cfg says.
func newAilingOn(t *testing.T, d *faulty.Driver, under string, dialled bool, cfg Config) ailing {
	t.Helper()
	listens, dials := cfg, cfg
	listens.CM, dials.CM, dials.Lanes = cm.Options{Device: under}, cm.Options{Device: d.Name()}, 1
	if !dialled {
		listens.CM.Device, dials.CM.Device = d.Name(), under
	}
	l, err := Listen(listens, testAddr())
	require.NoError(t, err)
	links, err := NewLinks(dials)
	require.NoError(t, err)
	b := &bed{t, l, links}
	t.Cleanup(func() {
		d.OnAcquire(nil)
		d.Restore()
		require.NoError(t, l.Close())
		require.NoError(t, links.Close())
		nothingLeft(t, d, "", "when all is closed")
	})
	client, server := b.pair()
	_, err = client.Write([]byte{1}) // both have heard of it then
	require.NoError(t, err)
	_, err = io.ReadFull(server, make([]byte, 1))
	require.NoError(t, err)
	if dialled {
		return ailing{t, d, client, server}
	}
	return ailing{t, d, server, client}
}

type failingDevice struct {
	d     *faulty.Driver
	under string
}

// The devices that fail when they are asked to, and the ones under them.
var (
	failingDevices             = []failingDevice{{failing, "soft0"}, {failingIWARP, "soft0-iwarp"}}
	failingAsynchronousDevices = []failingDevice{{failingAsynchronous, "asynchronous0"}, {failingRemoteIWARP, "remote0-iwarp"}}
)

// eachAiling runs f with each of the devices and either end on it.
func eachAiling(t *testing.T, f func(a ailing)) {
	needFailing(t)
	for _, on := range failingDevices {
		for end, dialled := range map[string]bool{"dialled": true, "accepted": false} {
			t.Run(on.d.Name()+"/"+end, func(t *testing.T) { f(newAiling(t, on.d, on.under, dialled)) })
		}
	}
}

// awaitSleep waits until a call of s sleeps that begins after parks of them did.
func (a ailing) awaitSleep(parks uint64) {
	a.t.Helper()
	require.Eventually(a.t, func() bool { return a.ill.Status().Parks > parks }, patience, time.Millisecond, "nobody sleeps")
}

func readToEnd(s *Stream) error {
	b := make([]byte, 4096)
	for {
		if _, err := s.Read(b); err != nil {
			return err
		}
	}
}

func writeToEnd(s *Stream) error {
	b := make([]byte, 10_000)
	for {
		if _, err := s.Write(b); err != nil {
			return err
		}
	}
}

func begun(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// illMoments are what the ill end is doing when it gets ill. Each has the stream fail, by fail,
// during the moment, and returns the errors of its calls; none if there is none to return it.
var illMoments = []struct {
	name string
	fall func(a ailing, fail func()) []error
}{
	{"idle", func(a ailing, fail func()) []error {
		fail()
		_, write := a.ill.Write(make([]byte, 100)) // what fails later, fails by this
		read := readToEnd(a.ill)
		_, again := a.ill.Write(make([]byte, 100))
		if write == nil {
			return []error{read, again}
		}
		return []error{write, read, again}
	}},
	{"reading", func(a ailing, fail func()) []error {
		parks := a.ill.Status().Parks
		read := begun(func() error { return readToEnd(a.ill) })
		a.awaitSleep(parks)
		fail()
		_, write := a.ill.Write(make([]byte, 100))
		if write == nil {
			return []error{<-read}
		}
		return []error{write, <-read}
	}},
	{"writing", func(a ailing, fail func()) []error {
		write := begun(func() error { return writeToEnd(a.ill) })
		for range 20 {
			_, err := io.ReadFull(a.other, make([]byte, 10_000))
			require.NoError(a.t, err)
		}
		fail()
		go func() { _, _ = io.Copy(io.Discard, a.other) }() // until it ends
		return []error{<-write, readToEnd(a.ill)}
	}},
	{"waiting to write", func(a ailing, fail func()) []error {
		stalls := a.ill.Status().Stalls
		write := begun(func() error { return writeToEnd(a.ill) })
		require.Eventually(a.t, func() bool { return a.ill.Status().Stalls > stalls }, patience, time.Millisecond)
		fail()
		go func() { _, _ = io.Copy(io.Discard, a.other) }() // so that there is room again
		return []error{<-write, readToEnd(a.ill)}
	}},
	{"closing", func(a ailing, fail func()) []error {
		_, err := a.ill.Write(make([]byte, 100))
		require.NoError(a.t, err)
		fail()
		require.NoError(a.t, a.ill.Close())
		return nil
	}},
}

// requireIll sees that an error is one of the causes, in the shape of package net.
func requireIll(t *testing.T, err error, causes ...error) {
	t.Helper()
	var failure *Error
	require.ErrorAs(t, err, &failure)
	require.False(t, failure.Timeout() && failure.Errno != syscall.ETIMEDOUT)
	require.NotContains(t, err.Error(), "\n")
	require.True(t, slices.ContainsFunc(causes, func(cause error) bool { return errors.Is(err, cause) }), "%v is none of %v", err, causes)
}

// ail lets the ill end fail at every moment, and requires errors of one of the causes there,
// and of a peer that is gone at the other end.
func ail(t *testing.T, fail func(a ailing), causes ...error) {
	t.Helper()
	for _, m := range illMoments {
		t.Run(m.name, func(t *testing.T) {
			eachAiling(t, func(a ailing) {
				within(a.t, "the ill end", func() {
					for _, err := range m.fall(a, func() { fail(a) }) {
						requireIll(a.t, err, causes...)
					}
				})
				within(a.t, "the other end", func() {
					err := readToEnd(a.other)
					if m.name == "closing" && err == io.EOF {
						return // the end was on its way before
					}
					requireIll(a.t, err, verbs.ErrPeerGone)
					require.Error(a.t, writeToEnd(a.other))
				})
			})
		})
	}
}

// statuses are all with which a request can fail.
func statuses() (all []verbs.WCStatus) {
	for s := verbs.WCLocLenErr; s <= verbs.WCTMRndvIncomplete; s++ {
		all = append(all, s)
	}
	return all
}

// TestFaultySends has a request complete with every status that there is, at every moment.
func TestFaultySends(t *testing.T) {
	for _, status := range statuses() {
		t.Run(status.String(), func(t *testing.T) {
			ail(t, func(a ailing) { a.qp().FailNextSend(status) }, status, verbs.ErrPeerGone)
		})
	}
}

// TestFaultyReceives is TestFaultySends for the receive queue.
func TestFaultyReceives(t *testing.T) {
	for _, status := range statuses() {
		t.Run(status.String(), func(t *testing.T) {
			ail(t, func(a ailing) { a.qp().FailReceives(status) }, status, verbs.ErrPeerGone)
		})
	}
}

// TestFaultyOverrun has each of the CQs overrun.
func TestFaultyOverrun(t *testing.T) {
	for name, cq := range map[string]func(ailing) *faulty.CQ{"receives": ailing.recvCQ, "sends": ailing.sendCQ} {
		t.Run(name, func(t *testing.T) {
			ail(t, func(a ailing) { cq(a).Overrun() }, verbs.ErrCQOverrun, verbs.ErrPeerGone)
		})
	}
}

// TestFaultyPosts has the device refuse a request though its queue has room. What comes behind
// it is not posted: the peer would take it for what is missing.
func TestFaultyPosts(t *testing.T) {
	ail(t, func(a ailing) { a.d.FailNext(faulty.PostSend, verbs.ErrQueueFull) }, verbs.ErrQueueFull)
}

// TestFaultyShortPost has the device take the first request of a post and refuse the second:
// what the first has written is not a message.
func TestFaultyShortPost(t *testing.T) {
	needFailing(t)
	a := newAiling(t, failingIWARP, "soft0-iwarp", true)
	_, err := a.ill.Write([]byte("whole"))
	require.NoError(t, err)
	var n atomic.Int32
	a.d.OnAcquire(func(what string) error {
		if what == faulty.PostSend && n.Add(1) == 2 {
			return verbs.ErrQueueFull
		}
		return nil
	})
	_, err = a.ill.Write([]byte("half"))
	requireIll(t, err, verbs.ErrQueueFull)
	requireIll(t, readToEnd(a.ill), verbs.ErrQueueFull)
	b := make([]byte, 5)
	_, err = io.ReadFull(a.other, b)
	require.NoError(t, err)
	require.Equal(t, "whole", string(b))
	requireIll(t, readToEnd(a.other), verbs.ErrPeerGone)
}

// TestNothingBehindARefusedPost: requests behind one that the device has refused are not posted,
// for the peer counts messages.
func TestNothingBehindARefusedPost(t *testing.T) {
	eachAiling(t, func(a ailing) {
		e := a.ill.e
		a.d.FailNext(faulty.PostSend, verbs.ErrQueueFull)
		e.mu.Lock()
		posted := e.sq.posted
		for range 3 {
			e.request(e.peer.Records, e.peer.RKey, lane.Bell{})
			e.post(nil, nil, false)
		}
		require.Equal(a.t, posted, e.sq.posted)
		require.ErrorIs(a.t, e.sq.refused, verbs.ErrQueueFull)
		e.mu.Unlock()
		requireIll(a.t, readToEnd(a.ill), verbs.ErrQueueFull)
		requireIll(a.t, readToEnd(a.other), verbs.ErrPeerGone)
	})
}

// TestFaultyRemoval has the device removed at every moment.
func TestFaultyRemoval(t *testing.T) {
	ail(t, func(a ailing) { a.d.Remove(nil) }, verbs.ErrNoDevice, verbs.ErrPeerGone)
}

// TestFaultyNotifications has all notifications lost. A call then sleeps on, whatever arrives;
// but not past its deadline, a Close or the end of the device. What has arrived is there for the
// next call.
func TestFaultyNotifications(t *testing.T) {
	asleep := func(a ailing) <-chan error {
		a.ill.e.p.channel.(*faulty.CompChannel).Mute(true)
		parks := a.ill.Status().Parks
		read := begun(func() error {
			_, err := a.ill.Read(make([]byte, 1))
			return err
		})
		a.awaitSleep(parks)
		return read
	}
	t.Run("deadline", func(t *testing.T) {
		eachAiling(t, func(a ailing) {
			read := asleep(a)
			require.NoError(a.t, a.ill.SetReadDeadline(time.Now().Add(time.Millisecond)))
			within(a.t, "Read", func() { require.ErrorIs(a.t, <-read, os.ErrDeadlineExceeded) })
			_, err := a.other.Write([]byte("here"))
			require.NoError(a.t, err)
			require.NoError(a.t, a.ill.SetReadDeadline(time.Time{}))
			b := make([]byte, 4)
			within(a.t, "the next Read", func() { _, err = io.ReadFull(a.ill, b) })
			require.NoError(a.t, err)
			require.Equal(a.t, "here", string(b))
		})
	})
	t.Run("close", func(t *testing.T) {
		eachAiling(t, func(a ailing) {
			read := asleep(a)
			require.NoError(a.t, a.ill.Close())
			within(a.t, "Read", func() { require.Error(a.t, <-read) })
		})
	})
	t.Run("the device goes", func(t *testing.T) {
		eachAiling(t, func(a ailing) {
			read := asleep(a)
			a.d.Remove(nil)
			within(a.t, "Read", func() { requireIll(a.t, <-read, verbs.ErrNoDevice, verbs.ErrPeerGone) })
		})
	})
}

// TestNobodyWaitsForAFailedDevice: a dial over a link whose device fails ends, and the next one
// gets a link of its own.
func TestNobodyWaitsForAFailedDevice(t *testing.T) {
	eachAiling(t, func(a ailing) {
		a.qp().FailNextSend(verbs.WCFatalErr)
		_, _ = a.ill.Write([]byte{1})
		requireIll(a.t, readToEnd(a.ill), verbs.WCFatalErr, verbs.ErrPeerGone)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		within(a.t, "the end of the lane", func() {
			select {
			case <-a.ill.e.done:
			case <-ctx.Done():
			}
		})
		require.NoError(a.t, ctx.Err())
	})
}
