// Rdmanet-doctor finds out why RDMA does or does not work here.
//
//	go install github.com/rdmanet/go-rdmanet/cmd/rdmanet-doctor@main
//	rdmanet-doctor
//
// It looks at the libraries of rdma-core, the kernel's RDMA devices and their files,
// ports, addresses and limits, and sends data through every device, the software
// device included, to see whether it comes back. What is wrong is told together with
// the one line that fixes it. No RDMA hardware is nothing wrong: the software device
// connects the processes of this host without any.
//
// Flags:
//
//	-json             print the report as JSON
//	-device name      look at one device only
//	-connections n    to how many processes at once there may be connections (100)
//
// The exit status is 0 if everything works that should, 1 if a check failed, 2 for
// flags that make no sense and 130 when it was interrupted.
//
// The JSON is one object. Fields may be added to it; those that are there keep their
// names and meanings as long as version is 2 (in version 1, fix was called mend):
//
//	version      2
//	system       operating system and architecture, as "linux/amd64"
//	ok           whether no check failed
//	checks       in the order they were made, each with
//	  name       libraries, kernel, kernel version, device files, namespace, shared
//	             memory, device, port, address, capacity, class, interrupts, self-test,
//	             daemons, rp_filter, memlock, descriptors or threads; system where there
//	             is no RDMA
//	  subject    what of that kind was checked, as "rxe0 port 1"; may be missing
//	  status     ok, note (worth knowing, nothing failed) or fail
//	  detail     what was found, for people
//	  fix        the line that fixes it; always there in a fail, sometimes in a note
//	devices      the devices, each with
//	  name, driver, transport, node_guid, firmware
//	  capabilities  names of what it is able to
//	  max_qp        how many queue pairs it has, one for each end of a lane; the connections
//	                between two processes share one to eight lanes
//	  max_cq        how many completion queues, two for each end of a lane
//	  max_mr        how many memory regions, three for each end of a lane and nine when a
//	                connection is busy; each 256 connections more take another
//	  addresses     the addresses of this host that lead to it
//	  error         what could not be found out; missing if nothing
//	  ports         each with number, state, link_layer, active_mtu, max_mtu (in bytes),
//	                lid (InfiniBand only) and gids, each with index, gid, type, netdev
//	                and, if it stands for one, address
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/rdmanet/go-rdmanet/internal/cli/command"
)

const (
	defaultConnections = 100
	maxConnections     = 1 << 20
)

// options is what the flags say.
type options struct {
	json        bool
	device      string
	connections int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], thisHost, os.Stdout, os.Stderr))
}

// run is the program; it returns the exit status.
func run(ctx context.Context, args []string, gather func() host, stdout, stderr io.Writer) int {
	opt, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return command.ExitUsage
	}
	h := gather()
	report := examine(ctx, h, opt)
	if ctx.Err() != nil {
		fmt.Fprintln(stderr, "rdmanet-doctor: interrupted")
		return command.ExitInterrupted
	}
	write := report.print
	if opt.json {
		write = report.writeJSON
	}
	if err := write(stdout); err != nil {
		fmt.Fprintln(stderr, "rdmanet-doctor:", err)
		return command.ExitFailed
	}
	if !report.OK {
		return command.ExitFailed
	}
	return 0
}

// parse reads the flags and says on stderr what is wrong with them.
func parse(args []string, stderr io.Writer) (options, error) {
	var opt options
	fs := flag.NewFlagSet("rdmanet-doctor", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.BoolVar(&opt.json, "json", false, "print the report as JSON")
	fs.StringVar(&opt.device, "device", "", "`name` of the only device to look at (default: all)")
	fs.IntVar(&opt.connections, "connections", defaultConnections, "`number` of processes with connections to this one that the limits should allow")
	if err := fs.Parse(args); err != nil {
		return opt, err
	}
	var err error
	switch {
	case fs.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q: rdmanet-doctor takes flags only, see -help", fs.Arg(0))
	case opt.connections < 1 || opt.connections > maxConnections:
		err = fmt.Errorf("-connections %d is not between 1 and %d", opt.connections, maxConnections)
	}
	if err != nil {
		fmt.Fprintln(stderr, "rdmanet-doctor:", err)
	}
	return opt, err
}

func (r *report) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false) // the fixes are meant to be copied
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}
