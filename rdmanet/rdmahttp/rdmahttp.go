// Package rdmahttp has HTTP clients connect by RDMA.
//
// NewTransport returns an http.Transport that is ready to use, and DialContext is for a
// Transport that a program has made. Servers need neither: give a listener of package rdmanet to
// http.Server.Serve.
package rdmahttp

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"time"

	"github.com/rdmanet/go-rdmanet/rdmanet"
	"github.com/rdmanet/go-rdmanet/rdmanet/internal/dialtrace"
)

// dialTimeout is how long http.DefaultTransport dials at most.
const dialTimeout = 30 * time.Second

// NewTransport returns a Transport with the settings of http.DefaultTransport, HTTP/2 over TLS
// included, whose connections come from d by DialContext. A nil d stands for a Dialer with a
// Timeout of 30 seconds. The Transport dials on network "tcp", so that it falls back to TCP
// unless d.RequireRDMA is set; proxies of the environment are dialled in the same way. The
// caller may change it before its first use.
func NewTransport(d *rdmanet.Dialer) *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           DialContext(d),
		ForceAttemptHTTP2:     true, // which a DialContext prevents otherwise
		MaxIdleConns:          100,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
}

// DialContext returns d.DialContext for the DialContext of an http.Transport. An
// httptrace.ClientTrace in the context of the request sees its dials: ConnectStart and
// ConnectDone are called for each attempt by RDMA, with the network, the address and the kind of
// error that package net would tell for TCP; package net calls them for an attempt by TCP after or beside
// it. So an address may have two pairs of calls, and the first ConnectDone an error although
// the dial succeeds. A nil d stands for a Dialer with a Timeout of 30 seconds.
func DialContext(d *rdmanet.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	if d == nil {
		d = &rdmanet.Dialer{Timeout: dialTimeout}
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if trace := httptrace.ContextClientTrace(ctx); trace != nil && (trace.ConnectStart != nil || trace.ConnectDone != nil) {
			ctx = dialtrace.With(ctx, &dialtrace.Hooks{
				ConnectStart: trace.ConnectStart, ConnectDone: trace.ConnectDone,
				Lookup: func(ctx context.Context) context.Context { return newLookupContext(ctx, trace) },
			})
		}
		return d.DialContext(ctx, network, address)
	}
}

// A lookupContext is a context whose trace is told of names that are looked up and of nothing else: as in
// package net, that a Resolver connects to name servers is not for who looks at the dial.
type lookupContext struct {
	context.Context
	names context.Context // has that trace alone
}

func newLookupContext(ctx context.Context, trace *httptrace.ClientTrace) context.Context {
	names := &httptrace.ClientTrace{DNSStart: trace.DNSStart, DNSDone: trace.DNSDone}
	if names.DNSStart == nil {
		names.DNSStart = func(httptrace.DNSStartInfo) {} // without hooks of package net it would not hide those of ctx
	}
	return lookupContext{ctx, httptrace.WithClientTrace(context.Background(), names)}
}

func (c lookupContext) Value(key any) any {
	if v := c.names.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}
