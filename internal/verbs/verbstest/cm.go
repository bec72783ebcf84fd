package verbstest

import (
	"bytes"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// testCM tests connections by CMIDs, from both sides.
func testCM(t *testing.T, s *suite) {
	if s.cfg.Driver == nil {
		t.Skip("Config.Driver is nil: no connection manager")
	}

	s.run(t, "Flow", func(e *env) {
		p := e.cmPair(cmOptions{request: []byte("hello"), reply: []byte("welcome")})
		exchange(e.t, p.Pair)
		assert.Equal(e.t, p.listener.LocalAddr(), p.client.RemoteAddr())
		assert.Equal(e.t, p.listener.LocalAddr(), p.server.LocalAddr())
		assert.Equal(e.t, p.client.LocalAddr(), p.server.RemoteAddr())
		assert.NotZero(e.t, p.client.LocalAddr().Port())
		fill(p.A.Mem[:100], 4)
		p.A.Post(writeWR(1, p.A.SGL(0, 100), p.B, 500), readWR(2, p.A.SGL(1000, 100), p.B, 500))
		p.A.SentOK(1, verbs.WCRDMAWrite)
		p.A.SentOK(2, verbs.WCRDMARead)
		sameBytes(e.t, p.A.Mem[:100], p.A.Mem[1000:1100])
		require.NoError(e.t, streamErr(e, p.A, p.B, 500))
	})

	s.run(t, "PrivateDataLimits", func(e *env) {
		request := bytes.Repeat([]byte{0xa1}, driver.MaxConnectPrivateData)
		reply := bytes.Repeat([]byte{0xb2}, driver.MaxAcceptPrivateData)
		exchange(e.t, e.cmPair(cmOptions{request: request, reply: reply}).Pair)
		exchange(e.t, e.cmPair(cmOptions{}).Pair)
	})

	s.run(t, "DataBeforeEstablished", func(e *env) {
		// The client may send as soon as it is established, whatever the server
		// has heard; its receives are posted before it accepts.
		l := e.listen()
		c := e.resolve(l.LocalAddr())
		a := c.end(EndConfig{})
		require.NoError(e.t, c.Connect(connParam(nil), e.cfg.Timeout))
		srv := e.adopt(l.next(driver.CMConnectRequest).ID)
		b := srv.end(EndConfig{})
		b.Recv(1, 0, 64)
		require.NoError(e.t, srv.Accept(connParam(nil)))
		c.next(driver.CMEstablished)
		fill(a.Mem[:64], 1)
		a.Post(sendWR(2, a.SGL(0, 64)))
		b.ReceivedOK(1, verbs.WCRecv)
		a.SentOK(2, verbs.WCSend)
		sameBytes(e.t, a.Mem[:64], b.Mem[:64])
		srv.next(driver.CMEstablished)
	})

	for _, who := range []string{"Client", "Server"} {
		s.run(t, "DisconnectBy"+who, func(e *env) {
			p := e.cmPair(cmOptions{})
			p.A.Recv(1, 0, 64)
			p.B.Recv(2, 0, 64)
			id := p.client
			if who == "Server" {
				id = p.server
			}
			require.NoError(e.t, id.Disconnect())
			p.client.next(driver.CMDisconnected)
			p.server.next(driver.CMDisconnected)
			e.inState(p.A.QP, verbs.QPErr)
			e.inState(p.B.QP, verbs.QPErr)
			requireFlushed(e.t, p.A.Received(1), 1)
			requireFlushed(e.t, p.B.Received(1), 2)
			if !e.cfg.has(DeviatesErrPosts) {
				p.A.Post(sendWR(3, nil))
				requireFlushed(e.t, p.A.Sent(1), 3)
			}
			p.client.silent()
			p.server.silent()
		})

		s.run(t, "CloseBy"+who, func(e *env) {
			// Closing an id that is connected disconnects it first.
			p := e.cmPair(cmOptions{})
			p.A.Recv(1, 0, 64)
			p.B.Recv(2, 0, 64)
			here, there, near, far := p.client, p.server, p.A, p.B
			if who == "Server" {
				here, there, near, far = p.server, p.client, p.B, p.A
			}
			require.NoError(e.t, near.QP.Close())
			require.NoError(e.t, here.Close())
			there.next(driver.CMDisconnected)
			e.inState(far.QP, verbs.QPErr)
			require.Equal(e.t, verbs.WCWRFlushErr, far.Received(1)[0].Status)
		})
	}

	s.run(t, "DeliveredBeforeDisconnect", func(e *env) {
		p := e.cmPair(cmOptions{})
		for i := range 20 {
			p.B.Recv(uint64(i), i*8, 8)
		}
		for i := range 10 {
			fill(p.A.Mem[i*8:i*8+8], i)
			p.A.Post(sendWR(uint64(i), p.A.SGL(i*8, 8)))
		}
		p.A.Sent(10)
		require.NoError(e.t, p.client.Disconnect())
		p.server.next(driver.CMDisconnected)
		for i, wc := range p.B.Received(10) {
			requireOK(e.t, wc, p.B.QP, uint64(i), verbs.WCRecv)
		}
		requireFlushed(e.t, p.B.Received(10), ids(10, 10)...)
		sameBytes(e.t, p.A.Mem[:80], p.B.Mem[:80])
	})

	s.run(t, "ClosedAsAnswered", func(e *env) {
		// A server that ends between its answer and the client's confirmation leaves no client
		// with a connection to nobody.
		if e.cfg.has(DeviatesClosedAnswer) {
			e.t.Skip("the device loses requests after that")
		}
		for i := range 30 {
			c, srv, a, b := e.answered(i)
			require.NoError(e.t, b.QP.Close())
			require.NoError(e.t, srv.Close())
			if c.nextOf(driver.CMEstablished, driver.CMRejected, driver.CMUnreachable, driver.CMConnectError).Type == driver.CMEstablished {
				c.next(driver.CMDisconnected)
				e.inState(a.QP, verbs.QPErr)
				requireFlushed(e.t, a.Received(1), 1)
			}
		}
	})

	s.run(t, "DisconnectedAsAnswered", func(e *env) {
		// The same of a server that takes leave, and hears of it itself, confirmed or not.
		for i := range 12 {
			c, srv, a, b := e.answered(i)
			require.NoError(e.t, srv.Disconnect())
			if srv.nextOf(driver.CMEstablished, driver.CMDisconnected).Type == driver.CMEstablished {
				srv.next(driver.CMDisconnected)
			}
			requireFlushed(e.t, b.Received(1), 1)
			if c.nextOf(driver.CMEstablished, driver.CMRejected, driver.CMUnreachable, driver.CMConnectError).Type == driver.CMEstablished {
				c.next(driver.CMDisconnected)
				requireFlushed(e.t, a.Received(1), 1)
			}
			closed := make(chan error, 1)
			require.NoError(e.t, b.QP.Close())
			go func() { closed <- srv.Close() }()
			finish(e.t, closed, 1, e.cfg.Timeout) // the kernel does not hold on to it
		}
	})

	s.run(t, "DisconnectByBoth", func(e *env) {
		for range 10 {
			p := e.cmPair(cmOptions{})
			errs := make(chan error, 2)
			go func() { errs <- p.client.Disconnect() }()
			go func() { errs <- p.server.Disconnect() }()
			finish(e.t, errs, 2, e.cfg.Timeout)
			p.client.next(driver.CMDisconnected)
			p.server.next(driver.CMDisconnected)
		}
	})

	s.run(t, "ManyClients", func(e *env) {
		// One listener, many clients at once, each with its own connection.
		const clients = 12
		l := e.listen()
		var cs []*cmID
		var as []*End
		for i := range clients {
			c := e.resolve(l.LocalAddr())
			cs, as = append(cs, c), append(as, c.end(EndConfig{MemSize: 4096}))
			require.NoError(e.t, c.Connect(connParam([]byte{byte(i + 1)}), e.cfg.Timeout))
		}
		bs := map[byte]*End{}
		for range clients {
			request := l.next(driver.CMConnectRequest)
			srv := e.adopt(request.ID)
			who := request.Param.PrivateData[0]
			require.Nil(e.t, bs[who])
			bs[who] = srv.end(EndConfig{MemSize: 4096})
			require.NoError(e.t, srv.Accept(connParam([]byte{who})))
			srv.next(driver.CMEstablished)
		}
		for i, c := range cs {
			up := c.next(driver.CMEstablished)
			require.EqualValues(e.t, i+1, up.Param.PrivateData[0])
			exchange(e.t, &Pair{A: as[i], B: bs[byte(i+1)]})
		}
		require.NotEqual(e.t, cs[0].LocalAddr(), cs[1].LocalAddr())
	})

	s.run(t, "ListenerClosesFirst", func(e *env) {
		// Connections outlive the listener they came by.
		p := e.cmPair(cmOptions{})
		require.NoError(e.t, p.listener.Close())
		exchange(e.t, p.Pair)
		require.NoError(e.t, p.client.Disconnect())
		p.server.next(driver.CMDisconnected)
	})

	s.run(t, "PortIsFreeAgain", func(e *env) {
		l := e.listen()
		addr := l.LocalAddr()
		require.NoError(e.t, l.Close())
		again := e.newID()
		require.NoError(e.t, again.BindAddr(addr))
		require.NoError(e.t, again.Listen(1))
		require.Equal(e.t, addr, again.LocalAddr())
		e.resolve(addr)
	})

	s.run(t, "SourceAddress", func(e *env) {
		l := e.listen()
		c := e.newID()
		require.NoError(e.t, c.ResolveAddr(netip.AddrPortFrom(e.cmAddr(), 0), l.LocalAddr(), e.cfg.Timeout))
		c.next(driver.CMAddrResolved)
		require.Equal(e.t, e.cmAddr(), c.LocalAddr().Addr())
	})

	s.run(t, "NoEventAfterClose", func(e *env) {
		for range 10 {
			p := e.cmPair(cmOptions{})
			var closed, late atomic.Bool
			p.server.SetSink(func(driver.CMEvent) {
				if closed.Load() {
					late.Store(true)
				}
			})
			require.NoError(e.t, p.B.QP.Close())
			errs := make(chan error, 1)
			go func() { errs <- p.client.Disconnect() }()
			require.NoError(e.t, p.server.Close())
			closed.Store(true)
			finish(e.t, errs, 1, e.cfg.Timeout)
			p.client.next(driver.CMDisconnected)
			require.False(e.t, late.Load(), "an event came after Close")
		}
	})

	s.run(t, "CloseFromTheSink", func(e *env) {
		// The sink may close the id that the event is for.
		p := e.cmPair(cmOptions{})
		errs := make(chan error, 1)
		p.server.SetSink(func(ev driver.CMEvent) {
			if ev.Type == driver.CMDisconnected {
				errs <- ev.ID.Close()
			}
		})
		require.NoError(e.t, p.B.QP.Close()) // which may be a hang-up already
		require.NoError(e.t, p.client.Disconnect())
		require.NoError(e.t, receive(e, errs))
	})

	s.run(t, "Route", func(e *env) {
		r, err := e.cfg.Driver.Route(e.cfg.Device, e.cmAddr())
		require.NoError(e.t, err)
		assert.Equal(e.t, e.ctx.Device().Name(), r.Device)
		assert.True(e.t, r.Src.IsValid())
		assert.True(e.t, r.SameHost)
	})
}
