// Rdmanet-proxy carries any program that speaks TCP over RDMA. Two proxies stand between the
// client and the server, and neither of these is changed:
//
//	client --TCP--> proxy --RDMA--> proxy --TCP--> server
//
// It is installed by
//
//	go install github.com/rdmanet/go-rdmanet/cmd/rdmanet-proxy@main
//
// For a PostgreSQL server, say, start on the server's host, and then on the client's:
//
//	rdmanet-proxy -listen rdma://:7000 -to tcp://127.0.0.1:5432
//	rdmanet-proxy -listen tcp://127.0.0.1:6432 -to rdma://SERVER:7000
//
// and then
//
//	psql -h 127.0.0.1 -p 6432
//
// On one host, where SERVER is 127.0.0.1, no RDMA hardware is needed: the software
// device connects the two proxies. A program that uses package rdmanet itself talks to
// the proxy beside the server directly.
//
// A place is written as scheme://address, with the schemes tcp, tcp4, tcp6, unix,
// rdma, rdma4, rdma6 and, for RDMA where that gets there and otherwise TCP, rdma+tcp,
// rdma+tcp4 and rdma+tcp6: tcp://127.0.0.1:5432, rdma://:7000 for all addresses of this
// host, rdma://[::1]:0 for a port that is free, unix:///run/postgresql/.s.PGSQL.5432.
// Any two of them can be connected.
//
// What the two ends do to each other passes through: the end of one direction
// while the other goes on, a reset, and a reader that is slow, which makes the writer
// wait. A proxy keeps nothing but what is in the sockets' buffers and in the rings.
// Where the server cannot be reached, the client's connection is reset; Unix sockets
// know no reset, there it is closed.
//
// Flags:
//
//	-listen place     where clients come from
//	-to place         where their connections go
//	-device name      the RDMA device to use instead of the best one for the route
//	-timeout d        how long to wait for the server at most (10s)
//	-drain d          how long open connections may go on after Ctrl-C or SIGTERM (10s)
//	-v                print a line for each connection that has ended
//
// The first line of the output tells where the proxy listens, the last one what
// went through it. Ctrl-C or SIGTERM ends it: no new connections are taken, and
// those that are open have the time of -drain to end by themselves. A second Ctrl-C
// does not wait.
//
// The exit status is 0 when all connections had ended, 1 when something failed or
// connections were cut off after -drain, 2 for flags that make no sense and 130 when
// it was interrupted twice.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/cli/child"
	"github.com/rdmanet/go-rdmanet/internal/cli/command"
	"github.com/rdmanet/go-rdmanet/internal/cli/console"
	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// program is what messages begin with.
const program = "rdmanet-proxy"

const (
	defaultTimeout = 10 * time.Second
	defaultDrain   = 10 * time.Second
)

// options is what the flags say.
type options struct {
	from, to place
	device   string
	timeout  time.Duration
	drain    time.Duration
	verbose  bool
}

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	stop, stopped := context.WithCancel(context.Background())
	interrupt, interrupted := context.WithCancel(context.Background())
	go func() {
		<-signals
		stopped()
		<-signals
		interrupted()
		signal.Reset() // a third one need not be handled
	}()
	os.Exit(command.Status(interrupt, program, run(stop, interrupt, os.Args[1:])))
}

// run is the proxy until stop is done and its connections have ended, or interrupt
// is done.
func run(stop, interrupt context.Context, args []string) error {
	opt, err := parse(args)
	if err != nil {
		return err
	}
	out := console.Stdout()
	l, err := opt.from.Listen(stop, opt.from.address)
	if err != nil {
		return err
	}
	if err := child.Announce(out, place{opt.from.Config, l.Addr().String()}.String()); err != nil {
		_ = l.Close()
		return err
	}
	p := &proxy{options: opt, log: log.New(os.Stderr, program+": ", 0)}
	err = p.serve(stop, interrupt, l)
	fmt.Fprintln(out, p.total())
	if err == nil {
		err = out.Err()
	}
	return err
}

func parse(args []string) (options, error) {
	var opt options
	fs := flag.NewFlagSet(program, flag.ContinueOnError)
	fs.Func("listen", "`place` where clients come from, as tcp://127.0.0.1:6432, rdma://:7000, unix:///run/socket", opt.from.set)
	fs.Func("to", "`place` where their connections go, as rdma://HOST:7000, tcp://127.0.0.1:5432", opt.to.set)
	fs.StringVar(&opt.device, "device", "", "`name` of the RDMA device (default: the best one for the route)")
	fs.DurationVar(&opt.timeout, "timeout", defaultTimeout, "how long to wait for the server at most, a `duration` as 10s")
	fs.DurationVar(&opt.drain, "drain", defaultDrain, "how long open connections may go on after Ctrl-C or SIGTERM, a `duration` as 10s")
	fs.BoolVar(&opt.verbose, "v", false, "print a line for each connection that has ended")
	fs.Usage = func() {
		fmt.Fprint(fs.Output(), usage)
		fs.PrintDefaults()
	}
	err := command.Parse(fs, args, opt.check)
	opt.to.Timeout = opt.timeout
	return opt, err
}

// checkDevice reports whether there is an RDMA device of this name, which need not be one
// that is listed. Whatever else is wrong with it is told when it is used.
func checkDevice(name string) error {
	if name == "" {
		return nil
	}
	lc := rdmanet.ListenConfig{Device: name}
	l, err := lc.Listen(context.Background(), "rdma", ":0")
	switch {
	case err == nil:
		_ = l.Close()
	case errors.Is(err, rdmanet.ErrNoDevice):
		return rdmanet.ErrNoDevice
	}
	return nil
}

const usage = `Usage of rdmanet-proxy:

Rdmanet-proxy carries any program that speaks TCP over RDMA. One proxy stands beside the
server and one beside the client:

  server's host:  rdmanet-proxy -listen rdma://:7000 -to tcp://127.0.0.1:5432
  client's host:  rdmanet-proxy -listen tcp://127.0.0.1:6432 -to rdma://SERVER:7000

and the client, unchanged, connects to 127.0.0.1:6432. To try it on one host, which
needs no RDMA hardware, SERVER is 127.0.0.1.

A place is scheme://address. The schemes are tcp, tcp4, tcp6 and unix, which are the kernel's
sockets; rdma, rdma4 and rdma6; and rdma+tcp, rdma+tcp4 and rdma+tcp6, which are networks tcp of
package rdmanet: RDMA where that gets there, and otherwise TCP.

`

// check also gives each place that is RDMA's the device.
func (o *options) check() error {
	switch {
	case o.from.address == "" || o.to.address == "":
		return errors.New("say with -listen where clients come from and with -to where their connections go, see -help")
	case o.from.String() == o.to.String():
		return fmt.Errorf("-listen and -to are both %s: the proxy would be its own server", o.from)
	case o.timeout <= 0:
		return fmt.Errorf("-timeout %v is not above 0", o.timeout)
	case o.drain < 0:
		return fmt.Errorf("-drain %v is below 0", o.drain)
	case o.device != "" && !o.from.RDMA() && !o.to.RDMA():
		return fmt.Errorf("-device %s: neither %s nor %s is RDMA's", o.device, o.from, o.to)
	}
	if err := o.to.dialable(); err != nil {
		return err
	}
	if err := checkDevice(o.device); err != nil {
		return fmt.Errorf("-device %s: %w", o.device, err)
	}
	for _, p := range []*place{&o.from, &o.to} {
		if p.RDMA() {
			p.Device = o.device
		}
	}
	return nil
}
