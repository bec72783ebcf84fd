// Echo sends data through an RDMA connection, takes it back and compares every
// byte. Its server and its client use the connection as any net.Conn; what it takes to
// have one are these lines, in place of net.Listen and net.Dial:
//
//	l, err := rdmanet.Listen("rdma", "127.0.0.1:7000")
//	conn, err := l.Accept()
//
//	conn, err := rdmanet.Dial("rdma", "127.0.0.1:7000")
//
// examples/hello is a whole program of these, to be copied.
//
//	go run ./examples/echo
//
// starts a server and a client as two processes of this host. For a message
// size after the other the client first sends one message at a time and times
// the round trips, then streams messages both ways at once and measures the
// throughput. In turns with RDMA it does the same over TCP and Unix sockets of the
// kernel, to two more processes, and prints the three side by side. It needs no RDMA
// hardware: two processes of one host are connected by the software device.
//
// The two ends can be started by hand, in two terminals:
//
//	go run ./examples/echo -listen 127.0.0.1:7000
//	go run ./examples/echo -dial 127.0.0.1:7000
//
// Where the server is elsewhere or a network is named, only that one is measured:
//
//	go run ./examples/echo -network rdma
//	go run ./examples/echo -network kernel-tcp
//
// Standard input can take the way through the connection and back to standard
// output:
//
//	echo hello | go run ./examples/echo -stdin
//
// Flags:
//
//	-listen address   run the server alone; ends with Ctrl-C
//	-dial address     run the client alone
//	-size bytes       one message size instead of 64 B, 4 KiB, 64 KiB and 1 MiB
//	-count n          so many messages of each kind on each network, instead of as many as fit
//	                  in half a second on all of them
//	-stdin            echo standard input instead of measuring
//	-network name     rdma (the default), rdma4, rdma6; tcp, tcp4, tcp6: by RDMA where that
//	                  gets there, otherwise by TCP; kernel-tcp, kernel-tcp4, kernel-tcp6,
//	                  unix: the kernel's sockets
//	-device name      the RDMA device to use instead of the best one for the route
//	-stats            print the client's counters at the end
//
// The exit status is 0 when every byte came back, 1 when something failed, also if
// standard output is full or nobody reads it any more, 2 for flags that make no sense
// and 130 when it was interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/cli/command"
	"github.com/rdmanet/go-rdmanet/internal/cli/console"
	"github.com/rdmanet/go-rdmanet/internal/cli/endpoint"
)

const (
	maxSize     = 64 << 20
	dialTimeout = 10 * time.Second
)

// options is what the flags say.
type options struct {
	endpoint.Config
	listen, dial string
	size, count  int
	stdin, stats bool
	compare      bool            // with the kernel's sockets
	out          *console.Output // standard output
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	out := console.Stdout()
	err := run(ctx, os.Args[1:], out)
	if err == nil {
		err = out.Err()
	}
	os.Exit(command.Status(ctx, "echo", err))
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
		return client(ctx, opt, opt.dial)
	}
	return both(ctx, opt)
}

// both starts the server as a process of its own and is the client.
func both(ctx context.Context, opt options) error {
	server, err := startServer(ctx, opt.Config)
	if err != nil {
		return err
	}
	fmt.Fprintf(opt.messages(), "server  process %d, listening on %s %s\n", server.PID(), opt.Network, server.Address())
	return errors.Join(client(ctx, opt, server.Address()), server.stop())
}

// client connects to a server and does what the flags ask for.
func client(ctx context.Context, opt options, address string) (err error) {
	first, err := dial(ctx, opt.Config, address)
	if err != nil {
		return err
	}
	defer first.close()
	conn := first.conn
	fmt.Fprintf(opt.messages(), "client  process %d, %s to %s, device %s\n",
		os.Getpid(), conn.LocalAddr(), conn.RemoteAddr(), endpoint.Device(conn))
	links := []*link{first}
	if opt.compare {
		others, stop := dialKernel(ctx, opt)
		defer func() { err = errors.Join(err, stop()) }()
		links = append(links, others...)
	}
	fmt.Fprintln(opt.messages())
	if err := opt.out.Err(); err != nil {
		return err // before seconds go by for nobody
	}
	if opt.stdin {
		err = pipe(conn, os.Stdin, opt.out)
	} else {
		err = measure(ctx, links, opt)
	}
	if err != nil {
		return err
	}
	if opt.stats {
		printStats(opt.messages(), conn)
	}
	return nil
}

// messages is where text for people goes: beside the data when standard output
// carries the data.
func (o options) messages() io.Writer {
	if o.stdin {
		return os.Stderr
	}
	return o.out
}

func parse(args []string) (options, error) {
	opt := options{Config: endpoint.Config{Timeout: dialTimeout}}
	fs := flag.NewFlagSet("echo", flag.ContinueOnError)
	fs.StringVar(&opt.listen, "listen", "", "run the server alone, on this `address`")
	fs.StringVar(&opt.dial, "dial", "", "run the client alone, to this `address`")
	fs.IntVar(&opt.size, "size", 0, "message size in `bytes` (default: 64, 4096, 65536 and 1048576 in turn)")
	fs.IntVar(&opt.count, "count", 0, "`number` of messages of each kind (default: what fits in half a second, on all networks)")
	fs.BoolVar(&opt.stdin, "stdin", false, "echo standard input to standard output instead of measuring")
	fs.StringVar(&opt.Network, "network", "rdma", "`name` of the network: "+endpoint.Networks)
	fs.StringVar(&opt.Device, "device", "", "`name` of the RDMA device (default: the best one for the route)")
	fs.BoolVar(&opt.stats, "stats", false, "print the client's counters at the end")
	err := command.Parse(fs, args, func() error { return opt.check(command.Given(fs)) })
	// Who names a network, or has the server elsewhere, wants to see that one.
	opt.compare = opt.listen == "" && opt.dial == "" && !opt.stdin && !command.Given(fs)["network"]
	return opt, err
}

func (o options) check(given map[string]bool) error {
	switch {
	case o.listen != "" && o.dial != "":
		return errors.New("-listen and -dial are the two ends: start two processes, or give neither flag")
	case o.listen != "" && (o.stdin || o.stats || given["size"] || given["count"]):
		return errors.New("-size, -count, -stdin and -stats belong to the client, not to -listen")
	case o.stdin && (given["size"] || given["count"]):
		return errors.New("-size and -count mean nothing with -stdin")
	case given["size"] && (o.size < 1 || o.size > maxSize):
		return fmt.Errorf("-size %d is not between 1 and %d", o.size, maxSize)
	case given["count"] && o.count < 1:
		return fmt.Errorf("-count %d is not at least 1", o.count)
	}
	return o.Check()
}
