//go:build linux && (amd64 || arm64)

package soft

import (
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// BenchmarkConnect makes and ends connections, all that belongs to them included,
// next to a plain Unix socket that also echoes a byte.
func BenchmarkConnect(b *testing.B) {
	b.Run("transport=soft", benchConnectSoft)
	b.Run("transport=unix", benchConnectUnix)
}

// benchEnd is what one end of a connection needs.
type benchEnd struct {
	closers []io.Closer
	qp      verbs.QP
}

func (e *benchEnd) make(b *testing.B, id driver.CMID) {
	ctx := id.Verbs()
	pd, err := ctx.AllocPD()
	require.NoError(b, err)
	ch, err := ctx.CreateCompChannel()
	require.NoError(b, err)
	cq, err := ctx.CreateCQ(256, ch)
	require.NoError(b, err)
	mem, err := ctx.AllocMemory(1<<20, 16<<10)
	require.NoError(b, err)
	mr, err := pd.RegMR(mem.Bytes(), verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	require.NoError(b, err)
	e.qp, err = id.CreateQP(pd, &verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxInlineData: 1 << 20}})
	require.NoError(b, err)
	_, err = e.qp.PostRecv(make([]verbs.RecvWR, 64))
	require.NoError(b, err)
	e.closers = append(e.closers[:0], e.qp, cq, ch, mr, mem, pd)
}

func (e *benchEnd) close(b *testing.B, id driver.CMID) {
	for _, c := range e.closers {
		require.NoError(b, c.Close())
	}
	require.NoError(b, id.Close())
}

func benchConnectSoft(b *testing.B) {
	b.ReportAllocs()
	served := make(chan struct{})
	var server benchEnd
	sink := func(ev driver.CMEvent) {
		switch ev.Type {
		case driver.CMConnectRequest:
			go func() {
				server.make(b, ev.ID)
				require.NoError(b, ev.ID.Accept(nil))
			}()
		case driver.CMDisconnected:
			go func() {
				server.close(b, ev.ID)
				served <- struct{}{}
			}()
		}
	}
	l, err := softDriver{}.CreateID("", sink)
	require.NoError(b, err)
	defer l.Close()
	require.NoError(b, l.BindAddr(localhost0))
	require.NoError(b, l.Listen(128))
	for b.Loop() {
		events := make(chan driver.CMEvent, 8)
		id, err := softDriver{}.CreateID("", func(ev driver.CMEvent) { events <- ev })
		require.NoError(b, err)
		require.NoError(b, id.ResolveAddr(netip.AddrPort{}, l.LocalAddr(), patience))
		<-events
		require.NoError(b, id.ResolveRoute(patience))
		<-events
		var client benchEnd
		client.make(b, id)
		require.NoError(b, id.Connect(nil, patience))
		ev := <-events
		require.Equal(b, driver.CMEstablished, ev.Type)
		client.close(b, id)
		<-served
	}
}

func benchConnectUnix(b *testing.B) {
	b.ReportAllocs()
	l, err := net.Listen("unix", filepath.Join(b.TempDir(), "s"))
	require.NoError(b, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	buf := make([]byte, 1)
	for b.Loop() {
		c, err := net.Dial("unix", l.Addr().String())
		require.NoError(b, err)
		_, err = c.Write(buf)
		require.NoError(b, err)
		_, err = io.ReadFull(c, buf)
		require.NoError(b, err)
		c.Close()
	}
}
