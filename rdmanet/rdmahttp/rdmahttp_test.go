package rdmahttp

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

var quiet = slog.New(slog.DiscardHandler)

// serve starts a server on a listener, which tells the protocol and the peer's address.
func serve(t *testing.T, l net.Listener, secure bool) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Proto)
	}))
	_ = s.Listener.Close()
	s.Listener, s.EnableHTTP2 = l, secure
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// listen listens by RDMA and TCP, or by TCP alone.
func listen(t *testing.T, device string) net.Listener {
	t.Helper()
	l, err := (&rdmanet.ListenConfig{Device: device, Logger: quiet}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l
}

// tracer keeps what an httptrace.ClientTrace is told.
type tracer struct {
	mu   sync.Mutex
	told []string
	errs []error // of ConnectDone
	conn net.Conn
}

func (tr *tracer) tell(format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.told = append(tr.told, fmt.Sprintf(format, args...))
}

func (tr *tracer) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		ConnectStart: func(network, addr string) { tr.tell("start %s %s", network, addr) },
		ConnectDone: func(network, addr string, err error) {
			tr.tell("done %s %s %v", network, addr, err != nil)
			tr.mu.Lock()
			defer tr.mu.Unlock()
			tr.errs = append(tr.errs, err)
		},
		GotConn: func(info httptrace.GotConnInfo) { tr.conn = info.Conn },
	}
}

// get gets a page with a trace, and returns its text.
func (tr *tracer) get(t *testing.T, transport *http.Transport, url string) string {
	t.Helper()
	t.Cleanup(transport.CloseIdleConnections)
	ctx, cancel := context.WithTimeout(httptrace.WithClientTrace(t.Context(), tr.trace()), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := transport.RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(page)
}

func TestNewTransport(t *testing.T) {
	plain := serve(t, listen(t, ""), false)
	secure := serve(t, listen(t, ""), true)
	for _, d := range []*rdmanet.Dialer{nil, {RequireRDMA: true}} {
		var tr tracer
		require.Equal(t, "HTTP/1.1", tr.get(t, NewTransport(d), plain.URL))
		at := plain.Listener.Addr().String()
		require.Equal(t, []string{"start tcp " + at, "done tcp " + at + " false"}, tr.told)
		require.True(t, rdmanet.IsRDMA(tr.conn))

		transport := NewTransport(d)
		transport.TLSClientConfig = secure.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		tr = tracer{}
		require.Equal(t, "HTTP/2.0", tr.get(t, transport, secure.URL))
		require.IsType(t, &tls.Conn{}, tr.conn)
		require.True(t, rdmanet.IsRDMA(tr.conn))
	}
}

// TestDefaults compares with http.DefaultTransport.
func TestDefaults(t *testing.T) {
	ours, theirs := NewTransport(nil), http.DefaultTransport.(*http.Transport)
	require.NotNil(t, ours.Proxy)
	require.Equal(t, theirs.ForceAttemptHTTP2, ours.ForceAttemptHTTP2)
	require.Equal(t, theirs.MaxIdleConns, ours.MaxIdleConns)
	require.Equal(t, theirs.IdleConnTimeout, ours.IdleConnTimeout)
	require.Equal(t, theirs.TLSHandshakeTimeout, ours.TLSHandshakeTimeout)
	require.Equal(t, theirs.ExpectContinueTimeout, ours.ExpectContinueTimeout)
}

// TestFallbackIsTraced: RDMA's attempt fails and TCP's succeeds, and both are told.
func TestFallbackIsTraced(t *testing.T) {
	s := serve(t, listen(t, "none"), false)
	at := s.Listener.Addr().String()
	var tr tracer
	d := &rdmanet.Dialer{RetryRDMA: -1, Logger: quiet}
	require.Equal(t, "HTTP/1.1", tr.get(t, NewTransport(d), s.URL))
	require.Equal(t, []string{"start tcp " + at, "done tcp " + at + " true", "start tcp " + at, "done tcp " + at + " false"}, tr.told)
	require.False(t, rdmanet.IsRDMA(tr.conn))

	// As package net tells of TCP's attempts.
	var op *net.OpError
	require.ErrorAs(t, tr.errs[0], &op)
	require.Equal(t, "dial tcp "+at, fmt.Sprint(op.Op, " ", op.Net, " ", op.Addr))
	require.ErrorIs(t, op, syscall.ECONNREFUSED)
}

// nameServer returns a Resolver that dials a name server, which knows each name as 127.0.0.1.
func nameServer(t *testing.T) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan struct{})
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	go func() {
		defer close(served)
		query := make([]byte, 512)
		for {
			n, from, err := server.ReadFrom(query)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(query[:n]) != nil {
				continue
			}
			q := m.Questions[0]
			m.Response, m.Additionals = true, nil
			if q.Type == dnsmessage.TypeA {
				header := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
				m.Answers = []dnsmessage.Resource{{Header: header, Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}}}
			}
			if answer, err := m.Pack(); err == nil {
				_, _ = server.WriteTo(answer, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

// TestLookupIsTraced: that a name is looked up is told, and not that the name server is dialled for it, as
// with package net.
func TestLookupIsTraced(t *testing.T) {
	l := listen(t, "")
	defer l.Close()
	resolver := nameServer(t)
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	dial := func(trace *httptrace.ClientTrace, dial func(ctx context.Context, network, address string) (net.Conn, error)) {
		c, err := dial(httptrace.WithClientTrace(t.Context(), trace), "tcp", "host.example.:"+port)
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
	ours := DialContext(&rdmanet.Dialer{Resolver: resolver})
	var told [2][]string
	for i, f := range []func(context.Context, string, string) (net.Conn, error){(&net.Dialer{Resolver: resolver}).DialContext, ours} {
		var tr tracer
		trace := tr.trace()
		trace.DNSStart = func(info httptrace.DNSStartInfo) { tr.tell("lookup %s", info.Host) }
		trace.DNSDone = func(info httptrace.DNSDoneInfo) { tr.tell("found %v %v", info.Addrs, info.Err) }
		dial(trace, f)
		told[i] = tr.told
	}
	require.Equal(t, told[0], told[1])
	require.Len(t, told[1], 4)

	var tr tracer
	dial(tr.trace(), ours)
	require.Equal(t, []string{"start tcp 127.0.0.1:" + port, "done tcp 127.0.0.1:" + port + " false"}, tr.told)
}

// TestWithoutTrace dials where nobody looks, or at something else.
func TestWithoutTrace(t *testing.T) {
	l := listen(t, "")
	defer l.Close()
	for _, trace := range []*httptrace.ClientTrace{nil, {}, {ConnectStart: func(string, string) {}}} {
		ctx := t.Context()
		if trace != nil {
			ctx = httptrace.WithClientTrace(ctx, trace)
		}
		c, err := DialContext(nil)(ctx, "rdma", l.Addr().String())
		require.NoError(t, err)
		require.True(t, rdmanet.IsRDMA(c))
		require.NoError(t, c.Close())
	}
}
