package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/cli/console"
	"github.com/rdmanet/go-rdmanet/internal/cli/endpoint"
	"github.com/rdmanet/go-rdmanet/internal/latency"
)

const (
	// budget is how long one page size is fetched when -count is not given.
	budget = 500 * time.Millisecond
	// stall is how long one request may take.
	stall = 30 * time.Second
)

var defaultSizes = []int{1 << 10, 64 << 10, 1 << 20}

// fetcher is a client and what it found out.
type fetcher struct {
	client   *http.Client
	base     string
	progress *console.Progress
	dialled  atomic.Int64
	body     bytes.Buffer
	latency  latency.Histogram
}

// fetch fetches pages of every size from the server at address and prints a row
// of the table for each.
func fetch(ctx context.Context, opt options, address string) error {
	f := &fetcher{base: "http://example.test/pages/", progress: console.NewProgress(os.Stderr)}
	transport := &http.Transport{
		DisableCompression: true,
		// The whole difference to a client on TCP: where connections come from. The
		// URL names the site, and the site is at address.
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := opt.Dial(ctx, address)
			if err == nil && f.dialled.Add(1) == 1 {
				fmt.Fprintf(opt.out, "client  process %d, %s to %s, device %s\n\n",
					os.Getpid(), conn.LocalAddr(), conn.RemoteAddr(), endpoint.Device(conn))
			}
			return conn, err
		},
	}
	defer transport.CloseIdleConnections()
	f.client = &http.Client{Transport: transport, Timeout: stall}
	defer f.progress.Clear()

	sizes := defaultSizes
	if opt.size > 0 {
		sizes = []int{opt.size}
	}
	var table console.Table
	table.Header("page", "requests", "p50", "p90", "p99", "max", "requests/s", "throughput")
	requests := uint64(0)
	for _, size := range sizes {
		took, err := f.pages(ctx, size, opt.count)
		if err != nil {
			return err
		}
		h := &f.latency
		rate := float64(h.Count()) / took.Seconds()
		requests += h.Count()
		table.Row(console.Size(int64(size)), fmt.Sprint(h.Count()),
			console.Latency(h.Quantile(0.5)), console.Latency(h.Quantile(0.9)), console.Latency(h.Quantile(0.99)), console.Latency(h.Max()),
			console.Count(rate), console.Rate(rate*float64(size)))
	}
	f.progress.Clear()
	table.Print(opt.out)
	fmt.Fprintf(opt.out, "\n%d pages over %d connection(s), every byte compared\n", requests, f.dialled.Load())
	return nil
}

// pages fetches the page of size bytes count times, or for as long as the budget
// lasts where count is 0.
func (f *fetcher) pages(ctx context.Context, size, count int) (time.Duration, error) {
	want := newPage(size)
	url := f.base + fmt.Sprint(size)
	label := console.Size(int64(size)) + " pages"
	f.latency.Reset()
	// The first request pays for the connection; it is not what is measured.
	if _, err := f.page(ctx, url, want); err != nil {
		return 0, err
	}
	start := time.Now()
	f.progress.Start(label, start)
	for i := 1; ; i++ {
		request, err := f.page(ctx, url, want)
		if err != nil {
			return 0, err
		}
		f.latency.Record(request)
		now := time.Now()
		took := now.Sub(start)
		share := float64(took) / float64(budget)
		if count > 0 {
			share = float64(i) / float64(count)
		}
		if share >= 1 {
			return took, nil
		}
		if f.progress.Due(now) {
			f.progress.Show(now, share, console.Count(float64(i)/took.Seconds())+" requests/s")
		}
	}
}

// page fetches one page, compares it with what it must be and returns how long it
// took to arrive.
func (f *fetcher) page(ctx context.Context, url string, want []byte) (took time.Duration, err error) {
	start := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	f.body.Reset()
	if _, err := io.Copy(&f.body, resp.Body); err != nil {
		return 0, fmt.Errorf("read %s: %w", url, err)
	}
	took = time.Since(start)
	switch {
	case resp.StatusCode != http.StatusOK:
		return 0, fmt.Errorf("get %s: %s: %s", url, resp.Status, bytes.TrimSpace(f.body.Bytes()))
	case !bytes.Equal(f.body.Bytes(), want):
		return 0, fmt.Errorf("get %s: %d bytes came, but not the %d of the page", url, f.body.Len(), len(want))
	}
	return took, nil
}
