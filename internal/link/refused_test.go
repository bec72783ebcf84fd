package link

import (
	"errors"
	"io"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/verbs/faulty"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// TestFaultyLaneCause: however a lane learns that it has ended, the completion of the request that
// failed says why, if nobody has taken it in yet. The device that is gone needs no other reason,
// and a flush is none.
func TestFaultyLaneCause(t *testing.T) {
	disconnected := func(e *laneEnd) { e.event(&cm.Event{Type: cm.Disconnected}) }
	for _, c := range []struct {
		name   string
		status verbs.WCStatus
		end    func(e *laneEnd)
		errno  syscall.Errno
		is     []error
		not    error
	}{
		{"disconnected", verbs.WCRetryExcErr, disconnected, syscall.ETIMEDOUT, []error{verbs.WCRetryExcErr}, nil},
		{"disconnected for something", verbs.WCRemAccessErr, func(e *laneEnd) {
			e.event(&cm.Event{Type: cm.Disconnected, Err: syscall.EHOSTDOWN})
		}, syscall.ECONNRESET, []error{verbs.WCRemAccessErr, syscall.EHOSTDOWN, errGone}, nil},
		{"refused", verbs.WCRetryExcErr, func(e *laneEnd) {
			e.mu.Lock()
			e.sendFailed(verbs.ErrQueueFull)
			e.mu.Unlock()
		}, syscall.ETIMEDOUT, []error{verbs.WCRetryExcErr, verbs.ErrQueueFull}, nil},
		{"flushed behind the end", verbs.WCRetryExcErr, func(e *laneEnd) {
			e.mu.Lock()
			ending := errGone
			e.ending.Store(&ending)
			err := e.receiveFailed(verbs.WCWRFlushErr)
			e.failLocked(err)
			e.mu.Unlock()
		}, syscall.ETIMEDOUT, []error{verbs.WCRetryExcErr}, nil},
		{"flushed", verbs.WCWRFlushErr, disconnected, syscall.ECONNRESET, []error{errGone}, verbs.WCWRFlushErr},
		{"removed", verbs.WCRetryExcErr, func(e *laneEnd) {
			e.event(&cm.Event{Type: cm.DeviceRemoval})
		}, syscall.ENODEV, []error{errRemoved}, verbs.WCRetryExcErr},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t, Config{})
			client, _ := b.pair()
			e := client.e
			e.far()
			e.mu.Lock()
			e.sq.cq = failedCQ{e.sq.cq, c.status}
			e.mu.Unlock()
			c.end(e)
			within(t, "Read", func() {
				_, err := client.Read(make([]byte, 1))
				require.ErrorIs(t, err, c.errno)
				for _, is := range c.is {
					require.ErrorIs(t, err, is)
				}
				if c.not != nil {
					require.NotErrorIs(t, err, c.not)
				}
			})
			e.unhold()
			within(t, "the end of the lane", func() { <-e.done })
		})
	}
}

// TestFaultyLaneWriteReports: a Write reports no byte that the device has refused, from memory of
// the program or its own, with checksums or without: and all that it reported is with the peer.
func TestFaultyLaneWriteReports(t *testing.T) {
	needFailing(t)
	for _, c := range []struct {
		name    string
		cfg     Config
		devices []failingDevice
	}{
		{"inline", Config{}, failingDevices},
		{"staged", Config{}, failingAsynchronousDevices},
		{"framed", Config{Checksum: true}, failingDevices},
		{"framed and staged", Config{Checksum: true}, failingAsynchronousDevices},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, on := range c.devices {
				t.Run(on.d.Name(), func(t *testing.T) {
					a := newAilingOn(t, on.d, on.under, true, c.cfg)
					var n atomic.Int32
					a.d.OnAcquire(func(what string) error {
						if what == faulty.PostSend && n.Add(1) >= 50 {
							return verbs.ErrQueueFull
						}
						return nil
					})
					var got int64
					end := begun(func() (err error) {
						got, err = io.Copy(io.Discard, a.other)
						return err
					})
					var reported int64
					within(t, "Write", func() {
						for p := make([]byte, 1000); ; {
							k, err := a.ill.Write(p)
							reported += int64(k)
							if err != nil {
								requireIll(t, err, verbs.ErrQueueFull)
								return
							}
							require.Equal(t, len(p), k)
						}
					})
					within(t, "the other end", func() { requireIll(t, <-end, verbs.ErrPeerGone) })
					require.Equal(t, reported, got)
				})
			}
		})
	}
}

// An aloofQP takes nothing any more, as those of some devices in ERR.
type aloofQP struct{ verbs.QP }

func (aloofQP) PostRecv([]verbs.RecvWR) (int, error) { return 0, verbs.ErrInvalid }
func (aloofQP) PostSend([]verbs.SendWR) (int, error) { return 0, verbs.ErrInvalid }

// leaves are how the peer leaves.
var leaves = []struct {
	name  string
	leave func(t *testing.T, server *Stream)
	read  error
	write error
}{
	{"in good order", func(t *testing.T, server *Stream) {
		finished := make(chan struct{})
		server.OnFinish(func() { close(finished) })
		require.NoError(t, server.Close())
		within(t, "the end of a closed stream", func() { <-finished })
	}, io.EOF, syscall.EPIPE},
	{"without a word", func(t *testing.T, server *Stream) {
		server.e.fail(errGone)
		within(t, "the end of the peer's lane", func() { <-server.e.done })
	}, verbs.ErrPeerGone, verbs.ErrPeerGone},
}

// eachLeave runs f where the peer has written, has left, and the device takes nothing any more,
// all before this end has looked.
func eachLeave(t *testing.T, messages int, f func(t *testing.T, client *Stream, read, write error)) {
	needFailing(t)
	for _, l := range leaves {
		t.Run(l.name, func(t *testing.T) {
			for _, cfg := range []Config{{}, {CM: asynchronous()}, {CM: cm.Options{Device: "soft0-iwarp"}}} {
				t.Run(cfg.CM.Device, func(t *testing.T) {
					b := newBed(t, cfg)
					client, server := b.pair()
					_, err := client.Write([]byte{1}) // the server has answered it then
					require.NoError(t, err)
					_, err = io.ReadFull(server, make([]byte, 1))
					require.NoError(t, err)
					e := client.e
					e.mu.Lock()
					for range messages {
						_, err := server.Write([]byte("precious"))
						require.NoError(t, err)
					}
					l.leave(t, server)
					e.p.qp, e.sq.qp = aloofQP{e.p.qp}, aloofQP{e.sq.qp}
					e.mu.Unlock()
					f(t, client, l.read, l.write)
				})
			}
		})
	}
}

// TestFaultyLaneRefusedReceives has the device refuse to take the receives of what had arrived
// again: no byte of it is lost, and the end is the one that the peer has made.
func TestFaultyLaneRefusedReceives(t *testing.T) {
	const messages = wcBatch + 8 // more than one poll takes
	eachLeave(t, messages, func(t *testing.T, client *Stream, end, _ error) {
		within(t, "Read", func() {
			got, err := io.ReadAll(client)
			require.Len(t, got, messages*len("precious"))
			if end == io.EOF {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, syscall.ECONNRESET)
				require.ErrorIs(t, err, end)
			}
		})
	})
}

// TestFaultyLaneRefusedRequests has the device refuse requests after the peer has left: that is no
// reason of its own where the peer has closed the stream.
func TestFaultyLaneRefusedRequests(t *testing.T) {
	eachLeave(t, 1, func(t *testing.T, client *Stream, _, end error) {
		within(t, "Write", func() {
			_, err := client.Write([]byte("x"))
			if end == syscall.EPIPE && err == nil { // as over TCP: the next is told
				_, err = client.Write([]byte("x"))
			}
			require.ErrorIs(t, err, end)
			if end == syscall.EPIPE {
				require.NotErrorIs(t, err, verbs.ErrInvalid)
			}
		})
	})
}

// TestFaultyLaneArmingTakesAll: where the device refuses to arm a queue, what arrived before is
// taken in, with the end of the stream.
func TestFaultyLaneArmingTakesAll(t *testing.T) {
	eachAiling(t, func(a ailing) {
		e := a.ill.e
		_, err := a.ill.Read(nil)
		require.NoError(a.t, err)
		e.mu.Lock()
		_, err = a.other.Write([]byte("precious"))
		require.NoError(a.t, err)
		finished := make(chan struct{})
		a.other.OnFinish(func() { close(finished) })
		require.NoError(a.t, a.other.Close())
		within(a.t, "the end of a closed stream", func() { <-finished })
		a.d.FailNext(faulty.ReqNotify, verbs.ErrNoMemory)
		e.mu.Unlock()
		e.arm()
		within(a.t, "Read", func() {
			got, err := io.ReadAll(a.ill)
			require.NoError(a.t, err)
			require.Equal(a.t, "precious", string(got))
		})
	})
}

// TestFaultyLaneReposts has the device refuse to take a receive again while the peer writes.
func TestFaultyLaneReposts(t *testing.T) {
	eachAiling(t, func(a ailing) {
		a.d.FailNext(faulty.PostRecv, verbs.ErrNoMemory)
		within(a.t, "the ends", func() {
			all(
				func() { requireIll(a.t, writeToEnd(a.other), verbs.ErrPeerGone) },
				func() { requireIll(a.t, readToEnd(a.ill), verbs.ErrNoMemory) },
			)
		})
	})
}

// TestFaultyLaneArming has the device refuse to arm a queue for a Read that is about to sleep.
func TestFaultyLaneArming(t *testing.T) {
	eachAiling(t, func(a ailing) {
		a.d.FailNext(faulty.ReqNotify, verbs.ErrNoMemory)
		within(a.t, "the ends", func() {
			requireIll(a.t, readToEnd(a.ill), verbs.ErrNoMemory)
			requireIll(a.t, readToEnd(a.other), verbs.ErrPeerGone)
		})
	})
}

// A lateCQ completes a request with an error between the arming and the last look.
type lateCQ struct {
	verbs.CQ
	armed, told atomic.Bool
}

func (q *lateCQ) ReqNotify(solicitedOnly bool) error {
	q.armed.Store(true)
	return q.CQ.ReqNotify(solicitedOnly)
}

func (q *lateCQ) Poll(wcs []verbs.WC) (int, error) {
	if !q.armed.Load() || q.told.Swap(true) {
		return 0, nil
	}
	wcs[0] = verbs.WC{Status: verbs.WCWRFlushErr}
	return 1, nil
}

// TestFaultyLaneWriteHears has a request fail when the writer has armed the queue already, so that
// no event will come of it, and no receive be flushed.
func TestFaultyLaneWriteHears(t *testing.T) {
	b := newBed(t, Config{})
	client, _ := b.pair()
	e := client.e
	e.mu.Lock()
	cq := &lateCQ{CQ: e.p.sendCQ}
	e.p.sendCQ, e.sq.cq = cq, cq
	e.sq.posted = e.sq.completed + e.sq.cap
	e.mu.Unlock()
	within(t, "Write", func() {
		_, err := client.Write([]byte("x"))
		require.ErrorIs(t, err, verbs.ErrPeerGone)
	})
}

// A goneChannel is that of a device that was removed.
type goneChannel struct{ verbs.CompChannel }

func (goneChannel) WaitWrite(func() bool) error { return verbs.ErrNoDevice }

// TestFaultyLaneGoneChannel has the channel tell that the device is gone before the connection
// manager does.
func TestFaultyLaneGoneChannel(t *testing.T) {
	b := newBed(t, Config{})
	client, server := b.pair()
	e := client.e
	e.mu.Lock()
	e.p.channel = goneChannel{e.p.channel}
	e.mu.Unlock()
	within(t, "the calls", func() {
		for _, call := range []func([]byte) (int, error){client.Read, client.Write} {
			_, err := call(make([]byte, 1))
			require.ErrorIs(t, err, syscall.ENODEV)
			require.ErrorIs(t, err, verbs.ErrNoDevice)
			var failure *Error
			require.True(t, errors.As(err, &failure) && !failure.Timeout())
		}
		require.ErrorIs(t, readToEnd(server), verbs.ErrPeerGone)
	})
}
