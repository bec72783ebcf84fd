//go:build linux

package rdmanet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func init() { roles["successor"] = runSuccessor }

// successorVar is where a successor listens, as "network address".
const successorVar = "RDMANET_TEST_SUCCESSOR"

// runSuccessor is a server in a row of servers with one address: it says that it is
// there, answers each client with its process id, and leaves when its input ends.
func runSuccessor() int {
	network, address, _ := strings.Cut(os.Getenv(successorVar), " ")
	lc := ListenConfig{ReusePort: true, Logger: quiet}
	l, err := lc.Listen(context.Background(), network, address)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("listening", l.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = l.Close()
	}()
	var served sync.WaitGroup
	defer served.Wait()
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return 0
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
		served.Go(func() {
			defer c.Close()
			_, _ = io.ReadFull(c, make([]byte, 4))
			_, _ = fmt.Fprintf(c, "%8d", os.Getpid())
		})
	}
}

// A successor is such a server, from outside.
type successor struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	address string
}

func startSuccessor(t testing.TB, network, address string) *successor {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVar+"=successor", successorVar+"="+network+" "+address, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "listening ")
	require.True(t, ok, line)
	return &successor{cmd, stdin, address}
}

// leave has the server close its listener and waits for its end.
func (s *successor) leave(t testing.TB) {
	t.Helper()
	require.NoError(t, s.stdin.Close())
	within(t, lasting, "a server that leaves", func() { assert.NoError(t, s.cmd.Wait()) })
}

// greet dials a server and returns which one answered.
func greet(d *Dialer, network, address string) (pid string, rdma bool, err error) {
	c, err := d.DialContext(context.Background(), network, address)
	if err != nil {
		return "", false, err
	}
	defer c.Close()
	_, rdma = c.(*Conn)
	if _, err := c.Write([]byte("ping")); err != nil {
		return "", rdma, err
	}
	answer := make([]byte, 8)
	_, err = io.ReadFull(c, answer)
	return strings.TrimSpace(string(answer)), rdma, err
}

// TestHandOver replaces a server by the next, several times, while clients dial all the
// time: none is refused, and each gets its answer.
func TestHandOver(t *testing.T) {
	onSoftware(t)
	for _, network := range []string{"tcp", "rdma"} {
		t.Run(network, func(t *testing.T) {
			server := startSuccessor(t, network, loopbackAddr)
			address := server.address
			dialers := []Dialer{{RequireRDMA: true, Timeout: lasting}}
			if network == "tcp" {
				dialers = append(dialers, Dialer{Device: noSuchDevice, Logger: quiet, RetryRDMA: -1, Timeout: lasting})
			}
			var clients sync.WaitGroup
			var stop atomic.Bool
			var answered [2]atomic.Int64
			var servers sync.Map
			for k := range dialers {
				for range 2 {
					clients.Go(func() {
						for !stop.Load() {
							pid, rdma, err := greet(&dialers[k], network, address)
							if !assert.NoError(t, err) {
								return
							}
							if rdma != (k == 0) {
								assert.Fail(t, "the wrong kind of connection")
								return
							}
							answered[k].Add(1)
							servers.Store(pid, true)
						}
					})
				}
			}
			// serves waits until a server has served somebody, before it is replaced.
			serves := func(s *successor) {
				for k := range dialers {
					before := answered[k].Load()
					require.Eventually(t, func() bool {
						_, met := servers.Load(fmt.Sprint(s.cmd.Process.Pid))
						return met && answered[k].Load() > before+20 || t.Failed()
					}, lasting, time.Millisecond)
				}
			}
			pids := []int{server.cmd.Process.Pid}
			serves(server)
			for range 5 {
				next := startSuccessor(t, network, address)
				pids = append(pids, next.cmd.Process.Pid)
				server.leave(t)
				server = next
				serves(server)
			}
			stop.Store(true)
			clients.Wait()
			server.leave(t)
			for _, pid := range pids {
				_, ok := servers.Load(fmt.Sprint(pid))
				require.True(t, ok, "no client came to process %d", pid)
			}
			for k := range dialers {
				t.Logf("%d clients of kind %d, none refused", answered[k].Load(), k)
			}
			_, _, err := greet(&dialers[0], network, address)
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
		})
	}
}

// TestReusePort has listeners share an address only if all permit it.
func TestReusePort(t *testing.T) {
	onSoftware(t)
	shared := ListenConfig{ReusePort: true, Logger: quiet}
	alone := ListenConfig{Logger: quiet}
	for _, at := range []struct{ network, address string }{
		{"tcp", loopbackAddr}, {"tcp", ":0"}, {"tcp4", ":0"}, {"tcp6", "[::1]:0"}, {"rdma", loopbackAddr}, {"rdma", ":0"},
	} {
		t.Run(at.network+" "+at.address, func(t *testing.T) {
			first, err := shared.listen(context.Background(), at.network, at.address)
			require.NoError(t, err)
			defer first.Close()
			host, _, _ := net.SplitHostPort(at.address)
			address := net.JoinHostPort(host, fmt.Sprint(first.addr.Port))
			_, err = alone.Listen(context.Background(), at.network, address)
			requireOpError(t, err, "listen", []string{at.network}, syscall.EADDRINUSE)
			second, err := shared.listen(context.Background(), at.network, address)
			require.NoError(t, err)
			defer second.Close()
			require.Equal(t, first.Addr(), second.Addr())
			require.NoError(t, first.Close())
			third, err := shared.listen(context.Background(), at.network, address)
			require.NoError(t, err)
			defer third.Close()
			require.NoError(t, second.Close())
			_, err = second.Accept()
			require.ErrorIs(t, err, net.ErrClosed)

			c, err := (&Dialer{RequireRDMA: true}).DialContext(context.Background(), at.network, third.Addr().String())
			require.NoError(t, err)
			defer c.Close()
			s, err := third.Accept()
			require.NoError(t, err)
			require.Equal(t, c.LocalAddr().String(), s.RemoteAddr().String())
			require.NoError(t, s.Close())
			require.NoError(t, third.Close())
			last, err := alone.listen(context.Background(), at.network, address)
			require.NoError(t, err)
			require.NoError(t, last.Close())
		})
	}
	t.Run("of who does not", func(t *testing.T) {
		for _, network := range []string{"tcp", "rdma"} {
			l, err := alone.listen(context.Background(), network, loopbackAddr)
			require.NoError(t, err)
			defer l.Close()
			_, err = shared.Listen(context.Background(), network, l.Addr().String())
			requireOpError(t, err, "listen", []string{network}, syscall.EADDRINUSE)
			require.ErrorContains(t, err, "cannot be shared: its listener is without ListenConfig.ReusePort")
		}
	})
	t.Run("without a device that can", func(t *testing.T) {
		lc := shared
		lc.Device = noSuchDevice
		_, err := lc.Listen(context.Background(), "tcp", loopbackAddr)
		requireOpError(t, err, "listen", []string{"tcp"}, ErrNoDevice)
	})
}

// TestSharersComeAndGo: an address that listeners share can be listened at whatever others do there at that
// moment: the last of them leaves, or several come at once.
func TestSharersComeAndGo(t *testing.T) {
	onSoftware(t)
	lc := ListenConfig{ReusePort: true, Logger: quiet}
	for _, network := range []string{"rdma4", "tcp4"} {
		t.Run(network, func(t *testing.T) {
			listen := func(address string) net.Listener {
				l, err := lc.Listen(context.Background(), network, address)
				if !assert.NoError(t, err) {
					return nil
				}
				return l
			}
			for i := range 60 {
				first := listen("127.84.0.1:0") // which no other test uses
				require.NotNil(t, first)
				address := first.Addr().String()
				var all sync.WaitGroup
				all.Go(func() { assert.NoError(t, first.Close()) })
				next := make(chan net.Listener, 3)
				for range 1 + i%cap(next) {
					all.Go(func() { next <- listen(address) })
				}
				all.Wait()
				close(next)
				for l := range next {
					require.NotNil(t, l)
					require.NoError(t, l.Close())
				}
			}
		})
	}
}

// TestHandOverKeepsWhoWaits closes a listener that shares its address while connections
// wait for its Accept.
func TestHandOverKeepsWhoWaits(t *testing.T) {
	onSoftware(t)
	b := tcpKinds()[0]
	b.dialer.RequireRDMA = true // also when the machine is busy
	b.lc.ReusePort = true
	l := b.newListener(t)
	c, err := b.dialer.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	require.Eventually(t, func() bool { return l.Stats().Pending == 1 }, patience, time.Millisecond)
	require.NoError(t, l.Close())
	s, err := l.Accept()
	require.NoError(t, err)
	_, err = s.Write([]byte("late"))
	require.NoError(t, err)
	require.Equal(t, "late", string(readFull(t, c, 4)))
	require.NoError(t, s.Close())
	_, err = l.Accept()
	requireOpError(t, err, "accept", []string{"tcp"}, net.ErrClosed)

	// Where nobody accepts they are reset.
	b.lc.HandshakeTimeout = soon
	l = b.newListener(t)
	c, err = b.dialer.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	require.Eventually(t, func() bool { return l.Stats().Pending == 1 }, patience, time.Millisecond)
	require.NoError(t, l.Close())
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

// TestHandOverToWhoIsBusy closes a listener while clients wait for a place there. They wait
// for one at the next listener then, which has none for longer than a hand-over takes.
func TestHandOverToWhoIsBusy(t *testing.T) {
	onSoftware(t)
	lc := ListenConfig{ReusePort: true, Backlog: 1, HandshakeTimeout: lasting, Logger: quiet}
	first, err := lc.listen(context.Background(), "rdma", loopbackAddr)
	require.NoError(t, err)
	defer first.Close()
	dialed := 0
	dials := make(chan error, 64)
	dial := func() {
		dialed++
		go func() {
			d := Dialer{Timeout: lasting, Logger: quiet}
			c, err := d.Dial("rdma", first.Addr().String())
			if err == nil {
				defer c.Close()
			}
			dials <- err
		}()
	}
	dial()
	require.Eventually(t, func() bool { return first.Stats().Pending == 1 }, patience, time.Millisecond)
	dial()
	next, err := lc.listen(context.Background(), "rdma", first.Addr().String())
	require.NoError(t, err)
	defer next.Close()
	for range 4 { // the first may take one more
		dial()
	}
	served := func() { // by the next
		t.Helper()
		require.Eventually(t, func() bool { return next.Stats().Pending == 1 }, patience, time.Millisecond)
	}
	require.NoError(t, first.Close())
	served()
	time.Sleep(handOverPatience + handOverPatience/2)
	require.NoError(t, next.SetDeadline(time.Now().Add(lasting))) // in case a dial has failed
	for range dialed {
		l := next
		if first.Stats().Pending > 0 {
			l = first
		}
		c, err := l.Accept()
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, <-dials)
	}
}

// TestThroughHandOver has the listener after the one that was closing send dialers away.
func TestThroughHandOver(t *testing.T) {
	gone := fmt.Errorf("%w: %w", cm.ErrUnreachable, ErrPeerGone)
	synctest.Test(t, func(t *testing.T) {
		dial := func(errs ...error) error {
			n, err := throughHandOver(t.Context(), func() (int, error) {
				err := errs[0]
				if len(errs) > 1 {
					errs = errs[1:]
				}
				if err != nil {
					return 0, err
				}
				return 7, nil
			})
			require.Equal(t, err == nil, n == 7)
			return err
		}
		require.NoError(t, dial(nil))
		require.NoError(t, dial(gone, gone, nil))
		require.Equal(t, gone, dial(gone))
		require.Equal(t, gone, dial(gone, io.ErrNoProgress), "nobody is there any more")
		require.ErrorIs(t, dial(gone, fmt.Errorf("full: %w", verbs.ErrTryAgain)), verbs.ErrTryAgain)
		require.Equal(t, io.ErrNoProgress, dial(io.ErrNoProgress, nil))
	})
}

// TestLeftOfEitherKind: an Accept of a listener that leaves returns the clients of TCP that are left when
// they come, and not when it is known that no others come by RDMA.
func TestLeftOfEitherKind(t *testing.T) {
	onSoftware(t)
	lc := ListenConfig{ReusePort: true, Logger: quiet}
	l, err := lc.listen(context.Background(), "tcp", loopbackAddr)
	require.NoError(t, err)
	defer l.Close()
	l.mu.Lock()
	l.closed = true // Close has begun, and the links are not closed yet
	l.mu.Unlock()
	l.close(net.ErrClosed)
	accepted := make(chan net.Conn, 1)
	go func() {
		server, err := l.Accept()
		assert.NoError(t, err)
		accepted <- server
	}()
	time.Sleep(20 * time.Millisecond) // Accept waits, as a rule
	client, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	within(t, patience, "Accept", func() {
		server := <-accepted
		if assert.NotNil(t, server) {
			assert.Equal(t, client.LocalAddr().String(), server.RemoteAddr().String())
			assert.NoError(t, server.Close())
		}
	})
	require.NoError(t, l.Close())
	_, err = l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}
