// Http serves pages over RDMA: the unchanged http.Server of the standard library
// on an rdmanet listener, and the unchanged http.Transport on an rdmanet dialer:
//
//	l, err := rdmanet.Listen("rdma", "127.0.0.1:7080")
//	err = server.Serve(l)
//
//	transport.DialContext = func(ctx context.Context, _, address string) (net.Conn, error) {
//		return new(rdmanet.Dialer).DialContext(ctx, "rdma", address)
//	}
//
//	go run ./examples/http
//
// starts the server and the client as two processes of this host, fetches pages
// of several sizes over one kept-alive connection, compares every byte of them
// and prints how long a request took.
//
// The two ends can be started by hand, in two terminals:
//
//	go run ./examples/http -listen 127.0.0.1:7080
//	go run ./examples/http -dial 127.0.0.1:7080
//
// The server is the same on the kernel's sockets, where a browser or curl can
// talk to it:
//
//	go run ./examples/http -listen 127.0.0.1:7080 -network kernel-tcp
//	curl -s http://127.0.0.1:7080/pages/1024 | wc -c
//
// What connections the server has, it shows over TCP, also in a browser:
//
//	go run ./examples/http -listen 127.0.0.1:7080 -debug 127.0.0.1:6060
//	curl -s http://127.0.0.1:6060/debug/rdmanet
//
// Flags:
//
//	-listen address   run the server alone; ends with Ctrl-C
//	-dial address     run the client alone
//	-debug address    with -listen: show the server's connections on this TCP address
//	-size bytes       one page size instead of 1 KiB, 64 KiB and 1 MiB
//	-count n          so many requests of each size instead of as many as fit in half a second
//	-network name     rdma (the default), rdma4, rdma6; tcp, tcp4, tcp6: by RDMA where that
//	                  gets there, otherwise by TCP; kernel-tcp, kernel-tcp4, kernel-tcp6,
//	                  unix: the kernel's sockets
//	-device name      the RDMA device to use instead of the best one for the route
//
// The exit status is 0 when every page arrived unchanged, 1 when something failed, also
// if standard output is full or nobody reads it any more, 2 for flags that make no sense
// and 130 when it was interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/cli/child"
	"github.com/rdmanet/go-rdmanet/internal/cli/command"
	"github.com/rdmanet/go-rdmanet/internal/cli/console"
	"github.com/rdmanet/go-rdmanet/internal/cli/endpoint"
)

const dialTimeout = 10 * time.Second

// options is what the flags say.
type options struct {
	endpoint.Config
	listen, dial, debug string
	size, count         int
	out                 *console.Output // standard output
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	out := console.Stdout()
	err := run(ctx, os.Args[1:], out)
	if err == nil {
		err = out.Err()
	}
	os.Exit(command.Status(ctx, "http", err))
}

func run(ctx context.Context, args []string, out *console.Output) error {
	opt, err := parse(args)
	if err != nil {
		return err
	}
	opt.out = out
	switch {
	case opt.listen != "":
		return serve(ctx, opt)
	case opt.dial != "":
		return fetch(ctx, opt, opt.dial)
	}
	return both(ctx, opt)
}

// both starts the server as a process of its own and is the client.
func both(ctx context.Context, opt options) error {
	local, remove, err := opt.Local()
	if err != nil {
		return err
	}
	defer remove()
	server, err := child.Start(ctx, "-network", opt.Network, "-device", opt.Device, "-listen", local)
	if err != nil {
		return err
	}
	fmt.Fprintf(opt.out, "server  process %d, listening on %s %s\n", server.PID(), opt.Network, server.Address())
	return errors.Join(fetch(ctx, opt, server.Address()), server.Stop())
}

func parse(args []string) (options, error) {
	opt := options{Config: endpoint.Config{Timeout: dialTimeout}}
	fs := flag.NewFlagSet("http", flag.ContinueOnError)
	fs.StringVar(&opt.listen, "listen", "", "run the server alone, on this `address`")
	fs.StringVar(&opt.dial, "dial", "", "run the client alone, to this `address`")
	fs.StringVar(&opt.debug, "debug", "", "with -listen: show the server's connections on this TCP `address`")
	fs.IntVar(&opt.size, "size", 0, "page size in `bytes` (default: 1024, 65536 and 1048576 in turn)")
	fs.IntVar(&opt.count, "count", 0, "`number` of requests of each size (default: what fits in half a second)")
	fs.StringVar(&opt.Network, "network", "rdma", "`name` of the network: "+endpoint.Networks)
	fs.StringVar(&opt.Device, "device", "", "`name` of the RDMA device (default: the best one for the route)")
	err := command.Parse(fs, args, func() error { return opt.check(command.Given(fs)) })
	return opt, err
}

func (o options) check(given map[string]bool) error {
	switch {
	case o.listen != "" && o.dial != "":
		return errors.New("-listen and -dial are the two ends: start two processes, or give neither flag")
	case o.listen != "" && (given["size"] || given["count"]):
		return errors.New("-size and -count belong to the client, not to -listen")
	case o.debug != "" && o.listen == "":
		return errors.New("-debug belongs to the server: use it with -listen")
	case given["size"] && (o.size < 1 || o.size > maxPage):
		return fmt.Errorf("-size %d is not between 1 and %d", o.size, maxPage)
	case given["count"] && o.count < 1:
		return fmt.Errorf("-count %d is not at least 1", o.count)
	}
	return o.Check()
}
