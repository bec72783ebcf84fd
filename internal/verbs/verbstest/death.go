package verbstest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// testDeath: the other process is killed. RC has no keepalive, so the other end
// learns it from a request at the latest; what had been delivered stays delivered.
func testDeath(t *testing.T, s *suite) {
	if s.cfg.Peer == nil {
		t.Skip("Config.Peer is nil: no second process to kill")
	}
	conn := DefaultConnAttr()
	conn.Timeout, conn.RetryCnt = 16, 3 // 0.27 s, four times
	cfg := EndConfig{Conn: &conn}

	// untilFailure posts WRITEs to the dead until one fails. A few may still seem to
	// succeed on a device that has not noticed; none waits for ever.
	untilFailure := func(e *env, r *remotePeer) {
		e.t.Helper()
		limit := time.Now().Add(e.cfg.Timeout)
		for {
			r.Post(r.write(1000, 0, 64))
			wc := r.Sent(1)[0]
			require.EqualValues(e.t, 1000, wc.WRID)
			if wc.Status != verbs.WCSuccess {
				require.Contains(e.t, []verbs.WCStatus{verbs.WCRetryExcErr, verbs.WCWRFlushErr}, wc.Status, "status %v", wc.Status)
				return
			}
			require.True(e.t, time.Now().Before(limit), "writes to the dead go on succeeding")
		}
	}
	// fails requires that besides everything is flushed.
	fails := func(e *env, r *remotePeer, receives ...uint64) {
		e.t.Helper()
		if e.cfg.has(DeviatesErrPosts) {
			requireFlushed(e.t, r.Received(len(receives)), receives...)
			e.inState(r.QP, verbs.QPErr)
			return
		}
		untilFailure(e, r)
		r.Post(r.write(1001, 0, 64), unsignaled(r.write(1002, 0, 64)))
		requireFlushed(e.t, r.Sent(2), 1001, 1002)
		requireFlushed(e.t, r.Received(len(receives)), receives...)
		e.inState(r.QP, verbs.QPErr)
	}

	s.run(t, "BothProcessesWork", func(e *env) {
		r := e.startPeer(cfg)
		for i := range 50 {
			r.Recv(uint64(i), i*messageSize, messageSize)
		}
		r.order("send", 50)
		for i, wc := range r.Received(50) {
			requireOK(e.t, wc, r.QP, uint64(i), verbs.WCRecv)
			require.EqualValues(e.t, i, word(r.Mem, i*messageSize))
		}
		require.Equal(e.t, 50, r.report())
		fill(r.Mem[:256], 1)
		r.Post(r.write(1, 0, 256))
		r.SentOK(1, verbs.WCRDMAWrite)
		back := r.write(2, 1000, 256)
		back.Opcode = verbs.WRRDMARead
		r.Post(back)
		r.SentOK(2, verbs.WCRDMARead)
		sameBytes(e.t, r.Mem[:256], r.Mem[1000:1256])
		r.Post(sendWR(3, r.SGL(0, messageSize)))
		r.SentOK(3, verbs.WCSend)
	})

	s.run(t, "Idle", func(e *env) {
		r := e.startPeer(cfg)
		r.Recv(1, 0, 64)
		r.kill()
		fails(e, r, 1)
	})

	s.run(t, "DeliveredStaysDelivered", func(e *env) {
		r := e.startPeer(cfg)
		for i := range 30 {
			r.Recv(uint64(i), i*messageSize, messageSize)
		}
		r.order("send", 20)
		require.Equal(e.t, 20, r.report())
		r.kill()
		for i, wc := range r.Received(20) {
			requireOK(e.t, wc, r.QP, uint64(i), verbs.WCRecv)
			require.EqualValues(e.t, i, word(r.Mem, i*messageSize))
		}
		fails(e, r, ids(20, 10)...)
	})

	s.run(t, "MidStream", func(e *env) {
		// Killed while it sends: a prefix of its messages, whole and in order.
		r := e.startPeer(cfg)
		const slots = 32
		for i := range slots {
			r.Recv(uint64(i), i*messageSize, messageSize)
		}
		ordered := e.cfg.has(DeviatesNoRNR) // no more at once than there are receives
		if !ordered {
			r.order("stream", 0)
		}
		next := 0
		for ; next < 500; next++ {
			if ordered && next%slots == 0 {
				r.order("send", slots)
			}
			r.ReceivedOK(uint64(next), verbs.WCRecv)
			require.EqualValues(e.t, next, word(r.Mem, next%slots*messageSize))
			r.Recv(uint64(next+slots), next%slots*messageSize, messageSize)
		}
		r.kill()
		if !e.cfg.has(DeviatesErrPosts) {
			untilFailure(e, r)
		}
		for last := next + slots; next < last; next++ {
			wc := r.Received(1)[0]
			require.EqualValues(e.t, next, wc.WRID)
			if wc.Status != verbs.WCSuccess {
				require.Equal(e.t, verbs.WCWRFlushErr, wc.Status)
				next++
				requireFlushed(e.t, r.Received(last-next), ids(next, last-next)...)
				break
			}
			require.EqualValues(e.t, next, word(r.Mem, next%slots*messageSize))
		}
		e.inState(r.QP, verbs.QPErr)
	})

	s.run(t, "UnderOurWrites", func(e *env) {
		// Killed while we write into its memory: successes, one failure, flushes.
		if e.cfg.has(DeviatesErrPosts) {
			e.t.Skip("what is posted once the peer is gone does not complete on this device")
		}
		r := e.startPeer(cfg)
		killed := make(chan struct{})
		var failed bool
		limit := time.Now().Add(2 * e.cfg.Timeout)
		for i := 0; !failed; i++ {
			require.True(e.t, time.Now().Before(limit), "writes to the dead go on succeeding")
			if i == 200 {
				go func() { _ = r.cmd.Process.Kill(); close(killed) }()
			}
			r.Post(r.write(1, 0, 32<<10), unsignaled(r.write(2, 0, 64)), r.write(3, 0, 64))
			wc := r.Sent(1)[0]
			if wc.Status == verbs.WCSuccess {
				require.EqualValues(e.t, 1, wc.WRID)
				wc = r.Sent(1)[0]
				if wc.Status == verbs.WCSuccess {
					require.EqualValues(e.t, 3, wc.WRID)
					continue
				}
			}
			failed = true
			require.Contains(e.t, []verbs.WCStatus{verbs.WCRetryExcErr, verbs.WCWRFlushErr}, wc.Status)
			for id := wc.WRID + 1; id <= 3; id++ {
				requireFlushed(e.t, r.Sent(1), id)
			}
		}
		receive(e, killed)
		e.inState(r.QP, verbs.QPErr)
	})

	s.needs(t, verbs.CapSameHost, "Sleeper", func(e *env) {
		// On a device of one host the death is noticed without a request: the
		// receives are flushed, which wakes who sleeps.
		ch := e.channel()
		c := cfg
		c.Channel = ch
		r := e.startPeer(c)
		r.Recv(0, 0, messageSize)
		r.order("send", 1) // now they know each other
		r.ReceivedOK(0, verbs.WCRecv)
		r.report()
		r.Recv(1, 0, 64)
		require.NoError(e.t, ch.SetReadDeadline(time.Now().Add(e.cfg.Timeout)))
		errs := make(chan error, 1)
		go func() { errs <- directions[0].waitFor(ch, r.RecvCQ, 1) }()
		r.kill()
		require.ErrorIs(e.t, receive(e, errs), verbs.WCWRFlushErr)
		e.inState(r.QP, verbs.QPErr)
	})

	if s.cfg.Driver != nil {
		s.run(t, "ConnectedByCM", func(e *env) {
			// The connection manager tells of the death, on every device.
			r := e.startDialingPeer(EndConfig{})
			r.Recv(1, 0, messageSize)
			r.Recv(2, 0, messageSize)
			r.order("send", 1)
			r.ReceivedOK(1, verbs.WCRecv)
			require.Equal(e.t, 1, r.report())
			r.kill()
			r.id.next(driver.CMDisconnected)
			e.inState(r.QP, verbs.QPErr)
			requireFlushed(e.t, r.Received(1), 2)
		})

		s.run(t, "SleeperConnectedByCM", func(e *env) {
			// The flush wakes who sleeps, in both directions.
			for _, d := range directions {
				r := e.startDialingPeer(EndConfig{withChannel: true})
				r.Recv(1, 0, messageSize)
				require.NoError(e.t, d.deadline(r.channel, time.Now().Add(e.cfg.Timeout)))
				errs := make(chan error, 1)
				go func() { errs <- d.waitFor(r.channel, r.RecvCQ, 1) }()
				r.kill()
				require.ErrorIs(e.t, receive(e, errs), verbs.WCWRFlushErr)
			}
		})
	}

	s.run(t, "OthersLiveOn", func(e *env) {
		p := e.pair(PairConfig{})
		r, q := e.startPeer(cfg), e.startPeer(cfg)
		r.kill()
		fails(e, r)
		exchange(e.t, p)
		q.Recv(1, 0, 64)
		q.order("send", 1)
		q.ReceivedOK(1, verbs.WCRecv)
		q.report()
	})
}
