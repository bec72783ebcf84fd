//go:build linux

package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/storm"
)

// exitingVar says where the role "clients that exit" dials, by what network, how many clients it
// has, and the number of the first.
const exitingVar = "RDMANET_TEST_EXITING"

func init() { roles["clients that exit"] = clientsThatExit }

// clientsThatExit has clients each say a message and close, one after the other, and ends the
// process when the last Close has returned.
func clientsThatExit() int {
	var network, at string
	var first, clients int
	if _, err := fmt.Sscan(os.Getenv(exitingVar), &network, &at, &first, &clients); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for n := first; n < first+clients; n++ {
		if err := sayAndClose(network, at, uint64(n)); err != nil {
			fmt.Fprintf(os.Stderr, "client %d: %v\n", n, err)
			return 1
		}
	}
	os.Exit(0)
	return 0
}

func sayAndClose(network, at string, n uint64) (err error) {
	var c net.Conn
	if network == "tcp" {
		c, err = net.Dial(network, at)
	} else {
		c, err = (&Dialer{Logger: quiet}).Dial(network, at)
	}
	if err != nil {
		return err
	}
	_, err = c.Write(storm.Message(n))
	return errors.Join(err, c.Close())
}

// TestClientsThatExit: what clients have written whose process ends as soon as Close has returned
// arrives, with the end of the stream, as by TCP beside it: at a server that accepts them as they
// come, and at one that accepts nobody before all of them have left.
func TestClientsThatExit(t *testing.T) {
	for _, network := range []string{"rdma", "tcp"} {
		t.Run(network+"/accepted at once", func(t *testing.T) { exitClients(t, network, false) })
		t.Run(network+"/accepted late", func(t *testing.T) { exitClients(t, network, true) })
	}
}

func exitClients(t *testing.T, network string, late bool) {
	var l net.Listener
	var err error
	if network == "rdma" {
		l, err = (&ListenConfig{Logger: quiet}).Listen(context.Background(), network, testAddr())
	} else {
		l, err = net.Listen(network, loopbackAddr)
	}
	require.NoError(t, err)
	var server *storm.Server
	if !late {
		server = storm.Serve(l, false, 0)
	}
	const processes, clients = 4, 50
	var said []uint64
	for first := 0; first < processes*clients; first += clients {
		cmd := roleCommand("clients that exit")
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%s %s %d %d", exitingVar, network, l.Addr(), first, clients))
		cmd.Stderr = os.Stderr
		require.NoError(t, cmd.Run())
		for n := range clients {
			said = append(said, uint64(first+n))
		}
	}
	if late {
		server = storm.Serve(l, false, 0)
	}
	arrived, err := server.Finish(len(said), patience)
	require.NoError(t, err)
	require.Empty(t, arrived.Failed, "%d of %d", len(arrived.Failed), len(said))
	slices.Sort(arrived.Done)
	require.Equal(t, said, arrived.Done)
}
