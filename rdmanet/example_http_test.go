package rdmanet_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"

	"github.com/rdmanet/go-rdmanet/internal/selfsigned"
	"github.com/rdmanet/go-rdmanet/rdmanet"
)

func hello(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello over %s", r.Proto) }

// get fetches a page and prints it.
func get(transport *http.Transport, url string) {
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get(url)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Printf("%s, %v\n", body, err)
}

// An http.Server takes an RDMA listener as it takes any, and an http.Transport is told
// where connections come from.
func Example_http() {
	l, err := rdmanet.Listen("rdma", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(hello)}
	go func() { _ = server.Serve(l) }()
	defer server.Close()

	var dialer rdmanet.Dialer
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "rdma", address)
		},
	}
	get(transport, "http://"+l.Addr().String())
	// Output: hello over HTTP/1.1, <nil>
}

// HTTP/2 without TLS. With TLS, a Transport that has a DialContext uses HTTP/2 if
// ForceAttemptHTTP2 is set.
func Example_http2() {
	var h2c http.Protocols
	h2c.SetUnencryptedHTTP2(true)

	l, err := rdmanet.Listen("rdma", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(hello), Protocols: &h2c}
	go func() { _ = server.Serve(l) }()
	defer server.Close()

	var dialer rdmanet.Dialer
	transport := &http.Transport{
		Protocols: &h2c,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "rdma", address)
		},
	}
	get(transport, "http://"+l.Addr().String())
	// Output: hello over HTTP/2.0, <nil>
}

// TLS goes on top, with the certificates that TCP would have.
func Example_tls() {
	certificate, roots, err := selfsigned.Configs("server.example")
	if err != nil {
		log.Fatal(err)
	}
	l, err := rdmanet.Listen("rdma", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(hello), TLSConfig: certificate}
	go func() { _ = server.ServeTLS(l, "", "") }()
	defer server.Close()

	address := l.Addr().String()
	var dialer rdmanet.Dialer
	transport := &http.Transport{
		TLSClientConfig:   roots,
		ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "rdma", address)
		},
	}
	get(transport, "https://server.example")
	// Output: hello over HTTP/2.0, <nil>
}
