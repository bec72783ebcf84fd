package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/cli/child"
	"github.com/rdmanet/go-rdmanet/rdmanet/debughttp"
)

const maxPage = 64 << 20

// newPage makes the page of n bytes: the same in every process.
func newPage(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	return b
}

// serve serves pages until ctx is done.
func serve(ctx context.Context, opt options) error {
	ctx, cancel := child.WithParent(ctx)
	defer cancel()
	// The whole difference to a server on TCP is in this call.
	l, err := opt.Listen(ctx, opt.listen)
	if err != nil {
		return err
	}
	if err := child.Announce(opt.out, l.Addr().String()); err != nil {
		_ = l.Close()
		return err
	}
	if opt.debug != "" {
		stop, err := serveDebug(ctx, opt.debug, func(url string) { fmt.Fprintln(opt.out, "connections at", url) })
		if err != nil {
			_ = l.Close()
			return err
		}
		defer stop()
	}
	server := &http.Server{Handler: pages(), ReadHeaderTimeout: 10 * time.Second}
	closed := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = server.Close()
	})
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-closed
	return nil
}

// serveDebug shows the connections of this process over TCP until stop is called; tell
// is told where.
func serveDebug(ctx context.Context, address string, tell func(url string)) (stop func(), err error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/debug/rdmanet", debughttp.Handler())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l) // until it is closed
	}()
	tell("http://" + l.Addr().String() + "/debug/rdmanet")
	return func() {
		_ = server.Close()
		<-served
	}, nil
}

// pages answers /pages/N with a page of N bytes.
func pages() http.Handler {
	all := newPage(maxPage)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /pages/{size}", func(w http.ResponseWriter, r *http.Request) {
		size, err := strconv.Atoi(r.PathValue("size"))
		if err != nil || size < 0 || size > maxPage {
			http.Error(w, fmt.Sprintf("the size of a page is a number from 0 to %d", maxPage), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", strconv.Itoa(size))
		_, _ = w.Write(all[:size])
	})
	return mux
}
