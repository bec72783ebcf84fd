package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/cli/command"
	"github.com/rdmanet/go-rdmanet/internal/cli/commandtest"
	"github.com/rdmanet/go-rdmanet/internal/cli/endpoint"
)

func TestMain(m *testing.M) { os.Exit(commandtest.Main(m.Run, main)) }

// device is the RDMA device that the programs should find.
func device() string {
	if name := os.Getenv("RDMANET_DEVICE"); name != "" {
		return name
	}
	return "soft0"
}

var networks = []string{"rdma", "tcp", "kernel-tcp", "unix"}

func TestAlone(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			count := "200"
			if testing.Short() {
				count = "10"
			}
			out, errs, status := commandtest.Finish(t, commandtest.Program(t, "-network", network, "-count", count, "-stats"))
			require.Zero(t, status, errs)
			for _, want := range []string{"server  process", "client  process", "device ", "p50", "p90", "p99", "max",
				"64 B", "4 KiB", "64 KiB", "1 MiB", "every byte compared"} {
				assert.Contains(t, out, want)
			}
			assert.Contains(t, errs, "1 MiB stream ...\n", "progress in plain lines where there is no terminal")
			assert.NotContains(t, errs, "\r")
			assert.NotContains(t, out, "×", "a network that is named is not compared")
			if network == "rdma" {
				assert.Contains(t, out, "device "+device())
				assert.Contains(t, out, "doorbells")
			}
		})
	}
}

func TestComparison(t *testing.T) {
	// 7 messages do not fall evenly on 3 turns, and 1 leaves turns without any.
	for count, echoed := range map[string]string{"7": "44.8 MiB", "1": "6.40 MiB"} {
		out, errs, status := commandtest.Finish(t, commandtest.Program(t, "-count", count))
		require.Zero(t, status, errs)
		assert.Contains(t, out, "device "+device())
		assert.Regexp(t, `(?m)^ 1 MiB +`+count+` `, out, "as many round trips as asked for")
		assert.Regexp(t, `size +rdma p50 +kernel-tcp p50 +unix p50 +rdma stream +kernel-tcp stream +unix stream\n`, out)
		assert.Equal(t, 4*4, strings.Count(out, "×")-1, "four ratios for each size, and what they are")
		assert.Contains(t, out, "\n"+echoed+" echoed, every byte compared", "on all three networks")
	}
}

func TestComparisonLeavesOutWhatIsNotToBeHad(t *testing.T) {
	cmd := commandtest.Program(t, "-count", "1", "-size", "100")
	cmd.Env = append(cmd.Env, "TMPDIR="+t.TempDir()+"/none", "TMP=/none", "TEMP=/none")
	out, errs, status := commandtest.Finish(t, cmd)
	require.Zero(t, status, errs)
	assert.Contains(t, out, "unix is left out: make a directory for the socket")
	assert.Contains(t, out, "kernel-tcp p50")
	assert.NotContains(t, out, "unix p50")
	assert.Contains(t, out, "400 B echoed", "a round trip and a stream of one message on two networks")
}

func TestDeviceOfChoice(t *testing.T) {
	out, errs, status := commandtest.Finish(t, commandtest.Program(t, "-device", "soft0-iwarp", "-count", "100"))
	require.Zero(t, status, errs)
	assert.Contains(t, out, "device soft0-iwarp\n")
	assert.Contains(t, out, "every byte compared")
}

func TestTwoEnds(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			address, remove, err := endpoint.Config{Network: network}.Local()
			require.NoError(t, err)
			defer remove()
			server := commandtest.Start(t, "-network", network, "-listen", address)
			// 100,000 bytes: neither a power of two nor what fits into one read.
			for range 2 {
				out, errs, status := commandtest.Finish(t, commandtest.Program(t, "-network", network, "-dial", server.Address, "-size", "100000", "-count", "50"))
				require.Zero(t, status, errs)
				assert.Contains(t, out, "97.7 KiB           50", "one row, and as many round trips as asked for")
				assert.Contains(t, out, "9.54 MiB echoed", "50 round trips and 50 messages of a stream")
			}
			require.NoError(t, server.Process.Signal(os.Interrupt))
			_, errs, status := server.End()
			assert.Zero(t, status, "Ctrl-C is how a server ends: %s", errs)
		})
	}
}

func TestServerElsewhereIsNotCompared(t *testing.T) {
	here, _, err := endpoint.Config{Network: "rdma"}.Local()
	require.NoError(t, err)
	server := commandtest.Start(t, "-listen", here)
	out, errs, status := commandtest.Finish(t, commandtest.Program(t, "-dial", server.Address, "-count", "1"))
	require.Zero(t, status, errs)
	assert.NotContains(t, out, "×")
}

func TestStdin(t *testing.T) {
	data := make([]byte, 3<<20+17)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			for name, in := range map[string][]byte{"large": data, "line": []byte("hello\n"), "empty": nil} {
				cmd := commandtest.Program(t, "-network", network, "-stdin")
				cmd.Stdin = bytes.NewReader(in)
				out, errs, status := commandtest.Finish(t, cmd)
				require.Zero(t, status, errs)
				assert.Equal(t, sha256.Sum256(in), sha256.Sum256([]byte(out)), name)
				assert.Contains(t, errs, "unchanged")
			}
		})
	}
}

func TestOutputThatIsFull(t *testing.T) {
	for _, args := range []string{"-count 1", "-stdin", "-count 1 -stats -network unix", "-listen 127.0.0.1:0 -network kernel-tcp"} {
		t.Run(args, func(t *testing.T) { commandtest.RequireNoticesOutput(t, strings.Fields(args)...) })
	}
}

func TestStdinIsInteractive(t *testing.T) {
	cmd := commandtest.Program(t, "-stdin")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewReader(stdout)
	for _, line := range []string{"one\n", "two\n"} {
		_, err := io.WriteString(stdin, line)
		require.NoError(t, err)
		got, err := lines.ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, line, got, "a line comes back before the next is typed")
	}
	require.NoError(t, stdin.Close())
	require.NoError(t, cmd.Wait())
}

func TestFlagsThatMakeNoSense(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"-size 0", "-size 0 is not between"},
		{"-size 99999999999", "-size 99999999999 is not between"},
		{"-size x", "invalid value"},
		{"-count 0", "-count 0 is not at least 1"},
		{"-listen :0 -dial :1", "two ends"},
		{"-listen :0 -stdin", "belong to the client"},
		{"-listen :0 -count 1", "belong to the client"},
		{"-stdin -size 1", "mean nothing with -stdin"},
		{"-network udp", `unknown network "udp"`},
		{"-network kernel-tcp -device soft0", "needs a network of rdma or tcp"},
		{"-nonsense", "not defined: -nonsense"},
		{"file", `unexpected argument "file"`},
	} {
		t.Run(c.args, func(t *testing.T) {
			out, errs, status := commandtest.Finish(t, commandtest.Program(t, strings.Fields(c.args)...))
			assert.Equal(t, command.ExitUsage, status)
			assert.Contains(t, errs, c.want)
			assert.Empty(t, out)
		})
	}
	_, errs, status := commandtest.Finish(t, commandtest.Program(t, "-help"))
	assert.Zero(t, status)
	assert.Contains(t, errs, "Usage of echo")
}

func TestFailures(t *testing.T) {
	here, _, err := endpoint.Config{Network: "rdma"}.Local()
	require.NoError(t, err)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-dial", strings.Replace(here, ":0", ":1", 1)}, "refused"},
		{[]string{"-network", "kernel-tcp", "-dial", "127.0.0.1:1"}, "refused"},
		{[]string{"-network", "unix", "-dial", "/does/not/exist"}, "no such file"},
		{[]string{"-dial", "127.0.0.1"}, "missing port"},
		{[]string{"-device", "nosuch0"}, "nosuch0"},
		{[]string{"-listen", "127.0.0.1:nonsense"}, "nonsense"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			_, errs, status := commandtest.Finish(t, commandtest.Program(t, c.args...))
			assert.Equal(t, command.ExitFailed, status)
			assert.Contains(t, errs, "echo: ")
			assert.Contains(t, errs, c.want)
		})
	}
}

// badServer is a TCP server that treats its client as handle does.
func badServer(t *testing.T, handle func(net.Conn)) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			handle(conn)
			_ = conn.Close()
		}
	}()
	return l.Addr().String()
}

func TestWrongByteIsFound(t *testing.T) {
	address := badServer(t, func(conn net.Conn) {
		buf := make([]byte, 1<<20)
		for pos := 0; ; {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			if pos <= 777 && 777 < pos+n {
				buf[777-pos] ^= 1
			}
			pos += n
			if _, err := conn.Write(buf[:n]); err != nil {
				return
			}
		}
	})
	_, errs, status := commandtest.Finish(t, commandtest.Program(t, "-network", "kernel-tcp", "-dial", address, "-size", "100"))
	assert.Equal(t, command.ExitFailed, status)
	assert.Contains(t, errs, "byte 777 came back as")

	cmd := commandtest.Program(t, "-network", "kernel-tcp", "-dial", address, "-stdin")
	cmd.Stdin = strings.NewReader(strings.Repeat("x", 1000))
	_, errs, status = commandtest.Finish(t, cmd)
	assert.Equal(t, command.ExitFailed, status)
	assert.Contains(t, errs, "not what was sent")
}

func TestServerThatGoes(t *testing.T) {
	address := badServer(t, func(conn net.Conn) {
		_, _ = io.ReadFull(conn, make([]byte, 100))
	})
	_, errs, status := commandtest.Finish(t, commandtest.Program(t, "-network", "kernel-tcp", "-dial", address, "-size", "100"))
	assert.Equal(t, command.ExitFailed, status)
	assert.Contains(t, errs, "round trips of 100 B")

	// Standard input stays open and says nothing more: the client ends all the same.
	cmd := commandtest.Program(t, "-network", "kernel-tcp", "-dial", address, "-stdin")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	defer stdin.Close()
	_, err = stdin.Write(make([]byte, 100))
	require.NoError(t, err)
	_, errs, status = commandtest.Finish(t, cmd)
	assert.Equal(t, command.ExitFailed, status)
	assert.Contains(t, errs, "closed the connection")
}

func TestInterrupt(t *testing.T) {
	cmd := commandtest.Program(t, "-count", "1000000000")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	require.NoError(t, cmd.Start())
	lines := bufio.NewReader(stdout)
	for line := ""; !strings.HasPrefix(line, "client"); {
		line, err = lines.ReadString('\n')
		require.NoError(t, err)
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_, _ = io.Copy(io.Discard, lines)
	_ = cmd.Wait()
	assert.Equal(t, command.ExitInterrupted, cmd.ProcessState.ExitCode())
	assert.Contains(t, errs.String(), "echo: interrupted")
	assert.NotContains(t, errs.String(), "timeout")
}

func TestServerGoesWithItsClient(t *testing.T) {
	cmd := commandtest.Program(t, "-count", "1000000000")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	// Both processes hold the write end: it reads as ended when both are gone.
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewReader(stdout)
	for line := ""; !strings.HasPrefix(line, "client"); {
		line, err = lines.ReadString('\n')
		require.NoError(t, err)
	}
	require.NoError(t, cmd.Process.Kill())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, stderr)
	}()
	select {
	case <-gone:
	case <-time.After(30 * time.Second):
		t.Error("the server outlives its client")
	}
	_ = cmd.Wait()
}
