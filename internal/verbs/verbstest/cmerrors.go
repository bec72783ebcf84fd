package verbstest

import (
	"bytes"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// testCMErrors tests connections that do not come about.
func testCMErrors(t *testing.T, s *suite) {
	if s.cfg.Driver == nil {
		t.Skip("Config.Driver is nil: no connection manager")
	}

	s.run(t, "Reject", func(e *env) {
		for _, why := range [][]byte{[]byte("go away"), nil, bytes.Repeat([]byte{7}, driver.MaxRejectPrivateData)} {
			l := e.listen()
			c := e.resolve(l.LocalAddr())
			a := c.end(EndConfig{MemSize: 4096})
			a.Recv(1, 0, 64)
			require.NoError(e.t, c.Connect(connParam(nil), e.cfg.Timeout))
			srv := e.adopt(l.next(driver.CMConnectRequest).ID)
			require.NoError(e.t, srv.Reject(why))
			ev := c.next(driver.CMRejected)
			assert.Equal(e.t, driver.RejectConsumer, ev.Reason)
			assert.Error(e.t, ev.Err)
			requirePrivateData(e.t, why, ev.Param.PrivateData)
			require.NotEqual(e.t, verbs.QPRTS, a.QP.State())
			c.silent()
		}
	})

	s.run(t, "NobodyListens", func(e *env) {
		l := e.listen()
		addr := l.LocalAddr()
		require.NoError(e.t, l.Close())
		c := e.resolve(addr)
		c.end(EndConfig{MemSize: 4096})
		require.NoError(e.t, c.Connect(connParam(nil), e.cfg.Timeout))
		ev := c.next(driver.CMRejected)
		assert.Equal(e.t, driver.RejectNoService, ev.Reason)
		assert.Error(e.t, ev.Err)
	})

	s.run(t, "NoRoute", func(e *env) {
		// 203.0.113.0/24 is nobody's (RFC 5737). The error comes from the call or as an event.
		c := e.newID()
		to := netip.MustParseAddrPort("203.0.113.7:4791")
		if err := c.ResolveAddr(netip.AddrPort{}, to, 200*time.Millisecond); err != nil {
			return
		}
		ev := c.nextOf(driver.CMAddrError, driver.CMAddrResolved)
		if ev.Type == driver.CMAddrError {
			require.Error(e.t, ev.Err)
			return
		}
		if err := c.ResolveRoute(200 * time.Millisecond); err != nil {
			return
		}
		if c.nextOf(driver.CMRouteError, driver.CMRouteResolved).Type == driver.CMRouteError {
			return
		}
		c.end(EndConfig{MemSize: 4096})
		require.NoError(e.t, c.Connect(connParam(nil), 500*time.Millisecond))
		require.Error(e.t, c.next(driver.CMUnreachable).Err)
	})

	s.run(t, "ServerClosesInsteadOfAnswering", func(e *env) {
		l := e.listen()
		c := e.resolve(l.LocalAddr())
		c.end(EndConfig{MemSize: 4096})
		require.NoError(e.t, c.Connect(connParam(nil), e.cfg.Timeout))
		srv := e.adopt(l.next(driver.CMConnectRequest).ID)
		require.NoError(e.t, srv.Close())
		require.Error(e.t, c.nextOf(driver.CMRejected, driver.CMUnreachable).Err)
	})

	s.run(t, "ListenerClosesBeforeTheAnswer", func(e *env) {
		// A request that was delivered belongs to its new id and can still be accepted.
		l := e.listen()
		c := e.resolve(l.LocalAddr())
		a := c.end(EndConfig{})
		require.NoError(e.t, c.Connect(connParam(nil), e.cfg.Timeout))
		srv := e.adopt(l.next(driver.CMConnectRequest).ID)
		require.NoError(e.t, l.Close())
		b := srv.end(EndConfig{})
		require.NoError(e.t, srv.Accept(connParam(nil)))
		c.next(driver.CMEstablished)
		srv.next(driver.CMEstablished)
		exchange(e.t, &Pair{A: a, B: b})
	})

	s.run(t, "ClientGivesUp", func(e *env) {
		// The client closes before it is answered; the listener serves the next one.
		l := e.listen()
		c := e.resolve(l.LocalAddr())
		x := c.end(EndConfig{MemSize: 4096})
		require.NoError(e.t, c.Connect(connParam(nil), e.cfg.Timeout))
		srv := e.adopt(l.next(driver.CMConnectRequest).ID)
		y := srv.end(EndConfig{MemSize: 4096})
		require.NoError(e.t, x.QP.Close())
		require.NoError(e.t, c.Close())
		if err := srv.Accept(connParam(nil)); err == nil {
			// A connection that came up for a moment counts, too.
			ev := srv.nextOf(driver.CMConnectError, driver.CMUnreachable, driver.CMRejected, driver.CMDisconnected, driver.CMEstablished)
			if ev.Type == driver.CMEstablished {
				srv.next(driver.CMDisconnected)
			}
		}
		require.NoError(e.t, y.QP.Close())
		require.NoError(e.t, srv.Close())

		c = e.resolve(l.LocalAddr())
		c.end(EndConfig{MemSize: 4096})
		require.NoError(e.t, c.Connect(connParam(nil), e.cfg.Timeout))
		srv = e.adopt(l.next(driver.CMConnectRequest).ID)
		srv.end(EndConfig{MemSize: 4096})
		require.NoError(e.t, srv.Accept(connParam(nil)))
		c.next(driver.CMEstablished)
	})

	s.run(t, "Timeout", func(e *env) {
		// A server that never answers. The request is with it well before that is plain.
		l := e.listen()
		c := e.resolve(l.LocalAddr())
		c.end(EndConfig{MemSize: 4096})
		require.NoError(e.t, c.Connect(connParam(nil), 2*time.Second))
		srv := e.adopt(l.next(driver.CMConnectRequest).ID)
		require.Error(e.t, c.next(driver.CMUnreachable).Err)
		require.NoError(e.t, srv.Close())
	})

	s.run(t, "PrivateDataTooLong", func(e *env) {
		l := e.listen()
		c := e.resolve(l.LocalAddr())
		c.end(EndConfig{MemSize: 4096})
		require.ErrorIs(e.t, c.Connect(connParam(make([]byte, driver.MaxConnectPrivateData+1)), e.cfg.Timeout), verbs.ErrInvalid)
		require.NoError(e.t, c.Connect(connParam(nil), e.cfg.Timeout))
		srv := e.adopt(l.next(driver.CMConnectRequest).ID)
		srv.end(EndConfig{MemSize: 4096})
		require.ErrorIs(e.t, srv.Accept(connParam(make([]byte, driver.MaxAcceptPrivateData+1))), verbs.ErrInvalid)
		require.ErrorIs(e.t, srv.Reject(make([]byte, driver.MaxRejectPrivateData+1)), verbs.ErrInvalid)
		require.NoError(e.t, srv.Accept(connParam(nil)))
		c.next(driver.CMEstablished)
		srv.next(driver.CMEstablished)
	})

	s.run(t, "Addresses", func(e *env) {
		l := e.listen()
		other := e.newID()
		assert.ErrorIs(e.t, other.BindAddr(l.LocalAddr()), syscall.EADDRINUSE)
		elsewhere := other
		if e.cfg.has(DeviatesOnlyCM) {
			elsewhere = e.newID() // the kernel keeps the interface of an id that found its port in use
		}
		assert.ErrorIs(e.t, elsewhere.BindAddr(netip.MustParseAddrPort("203.0.113.7:0")), syscall.EADDRNOTAVAIL)
		// It is as good as new.
		require.NoError(e.t, other.BindAddr(netip.AddrPortFrom(e.cmAddr(), 0)))
	})

	s.run(t, "Conflicts", testConflicts)

	s.run(t, "State", func(e *env) {
		id := e.newID()
		assert.ErrorIs(e.t, id.ResolveRoute(time.Second), verbs.ErrState)
		assert.ErrorIs(e.t, id.Connect(connParam(nil), time.Second), verbs.ErrState)
		assert.ErrorIs(e.t, id.Accept(connParam(nil)), verbs.ErrState)
		assert.ErrorIs(e.t, id.Reject(nil), verbs.ErrState)
		assert.ErrorIs(e.t, id.Disconnect(), verbs.ErrState)

		l := e.listen()
		assert.ErrorIs(e.t, l.ResolveAddr(netip.AddrPort{}, l.LocalAddr(), time.Second), verbs.ErrState)
		assert.ErrorIs(e.t, l.Connect(connParam(nil), time.Second), verbs.ErrState)
		assert.ErrorIs(e.t, l.Accept(connParam(nil)), verbs.ErrState)

		p := e.cmPair(cmOptions{})
		assert.ErrorIs(e.t, p.client.Connect(connParam(nil), time.Second), verbs.ErrState)
		assert.ErrorIs(e.t, p.server.Accept(connParam(nil)), verbs.ErrState)
		assert.ErrorIs(e.t, p.server.Reject(nil), verbs.ErrState)
		exchange(e.t, p.Pair)
	})

	s.run(t, "Closed", func(e *env) {
		id := e.newID()
		require.NoError(e.t, id.Close())
		assert.ErrorIs(e.t, id.Close(), verbs.ErrClosed)
		assert.ErrorIs(e.t, id.BindAddr(netip.AddrPortFrom(e.cmAddr(), 0)), verbs.ErrClosed)
		assert.ErrorIs(e.t, id.Listen(1), verbs.ErrClosed)
		assert.ErrorIs(e.t, id.ResolveAddr(netip.AddrPort{}, netip.AddrPortFrom(e.cmAddr(), 1), time.Second), verbs.ErrClosed)
	})

	s.run(t, "UnknownDevice", func(e *env) {
		_, err := e.cfg.Driver.CreateID("no such device", func(driver.CMEvent) {})
		assert.ErrorIs(e.t, err, verbs.ErrNoDevice)
		_, err = e.cfg.Driver.Route("no such device", e.cmAddr())
		assert.ErrorIs(e.t, err, verbs.ErrNoDevice)
	})
}
