//go:build linux && (amd64 || arm64)

package rdmanet

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The fuzzer of the shared memory: a process that is connected to this one, maps all that
// the two share, and writes there what it wants while bytes move.
//
//	RDMANET_FUZZ_ROUNDS=N  rounds, each a connection
//	RDMANET_FUZZ_SEED=N    the seed of the first
const (
	fuzzRoundsVar = "RDMANET_FUZZ_ROUNDS"
	fuzzSeedVar   = "RDMANET_FUZZ_SEED"
)

const scribblerRole = "scribbler"

func init() { roles[scribblerRole] = runScribbler }

// runScribbler reads "seed device address" from its standard input, one line a round,
// and answers each with a line when the round is over.
func runScribbler() int {
	s := new(scribbler)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var seed uint64
		var device, address string
		if _, err := fmt.Sscan(in.Text(), &seed, &device, &address); err != nil {
			fmt.Fprintln(os.Stderr, "scribbler:", err)
			return 1
		}
		if err := s.round(rand.New(rand.NewPCG(seed, 0)), device, address); err != nil {
			fmt.Fprintln(os.Stderr, "scribbler:", err)
			return 1
		}
		fmt.Println("over")
	}
	return 0
}

// A scribbler has mappings of its own of what it shares with its peer: the library's
// come and go. It keeps those of the round before, since a link outlives its connections.
type scribbler struct{ now, before [][]byte }

func (s *scribbler) round(rng *rand.Rand, device, address string) error {
	// What was scribbled before may have made the link useless, which keeps a dial waiting.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	d := Dialer{Device: device}
	c, err := d.dial(ctx, "rdma", address)
	if _, ok := typed(err); ok || errors.Is(err, context.DeadlineExceeded) {
		return nil
	} else if err != nil {
		return err
	}
	for _, b := range s.before {
		if err := unix.MunmapPtr(unsafe.Pointer(&b[0]), uintptr(len(b))); err != nil {
			return err
		}
	}
	s.before = s.now
	if s.now, err = aliases(); err != nil {
		return err
	}
	// Bytes move both ways meanwhile. What comes of them nobody knows.
	moved := make(chan struct{}, 2)
	go func() { _, _ = io.Copy(io.Discard, c); moved <- struct{}{} }()
	msg := make([]byte, 1+rng.IntN(5000))
	go func() {
		for {
			if _, err := c.Write(msg); err != nil {
				break
			}
		}
		moved <- struct{}{}
	}()
	regions := append(append([][]byte{}, s.now...), s.before...)
	for range 1 + rng.IntN(400) {
		for range rng.IntN(8) {
			scribble(rng, regions[rng.IntN(len(regions))])
		}
		if rng.IntN(4) == 0 {
			time.Sleep(time.Duration(rng.IntN(100)) * time.Microsecond)
		}
	}
	_ = c.Close()
	<-moved
	<-moved
	return nil
}

// aliases maps once more all that the software device has mapped to be written.
func aliases() (all [][]byte, err error) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(maps) {
		var from, to uintptr
		var rights string
		if !bytes.Contains(line, []byte("memfd:rdma-soft")) {
			continue
		}
		if _, err := fmt.Sscanf(string(line), "%x-%x %s", &from, &to, &rights); err != nil {
			return nil, err
		}
		if rights != "rw-s" {
			continue
		}
		// Of no length at the old place, the call makes a second mapping.
		at, _, errno := unix.Syscall6(unix.SYS_MREMAP, from, 0, to-from, unix.MREMAP_MAYMOVE, 0, 0)
		if errno == unix.EFAULT || errno == unix.EINVAL {
			continue // it is gone
		}
		if errno != 0 {
			return nil, os.NewSyscallError("mremap", errno)
		}
		b := unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), to-from)
		whole, err := isBacked(b)
		if err != nil {
			return nil, err
		}
		if !whole { // a shorter memory has taken its place meanwhile
			if err := unix.MunmapPtr(unsafe.Pointer(&b[0]), uintptr(len(b))); err != nil {
				return nil, err
			}
			continue
		}
		all = append(all, b)
	}
	return all, nil
}

// isBacked reports whether the memory behind b is as long as b. To touch the rest would be SIGBUS;
// the kernel finds out without.
func isBacked(b []byte) (bool, error) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return false, err
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	_, err := unix.Write(pipe[1], b[len(b)-1:])
	if err == unix.EFAULT {
		return false, nil
	}
	return err == nil, err
}

// scribble writes one thing somewhere, most often where counts, entries and the first
// bytes of a ring are.
func scribble(rng *rand.Rand, b []byte) {
	reach := []int{64, 512, 4096, 32 << 10, 1 << 20}[rng.IntN(5)]
	off := rng.IntN(min(reach, len(b))) &^ 7
	word := (*uint64)(unsafe.Pointer(&b[off]))
	old := atomic.LoadUint64(word)
	switch rng.IntN(10) {
	case 0:
		atomic.StoreUint64(word, rng.Uint64())
	case 1:
		atomic.StoreUint64(word, 0)
	case 2:
		atomic.StoreUint64(word, ^uint64(0))
	case 3:
		atomic.StoreUint64(word, old+uint64(rng.IntN(64))-32)
	case 4:
		atomic.StoreUint64(word, old^1<<rng.IntN(64))
	case 5: // one half of it, as the counts of 32 bits are
		atomic.StoreUint32((*uint32)(unsafe.Pointer(&b[off+4*rng.IntN(2)])), uint32(rng.Uint64()>>rng.IntN(32)))
	case 6: // an entry: a lap, an opcode, an immediate
		atomic.StoreUint64(word, uint64(1+rng.IntN(3))<<40|uint64(rng.IntN(64))<<32|uint64(1+rng.IntN(6))<<28|uint64(rng.IntN(5000)))
	case 7: // a word from elsewhere, as of an earlier lap
		atomic.StoreUint64(word, atomic.LoadUint64((*uint64)(unsafe.Pointer(&b[rng.IntN(min(reach, len(b)))&^7]))))
	case 8:
		atomic.StoreUint64(word, uint64(rng.IntN(300)))
	case 9:
		for i := range min(rng.IntN(256), len(b)-off) {
			b[off+i] = byte(rng.Uint32())
		}
	}
}

// TestSharedMemoryFuzz has processes scribble over all that they share with this one. Each
// connection of theirs ends as connections do, at the latest with its process, or goes on
// with other bytes. No call is caught, nothing panics at either end, and what others here say
// to each other stays as it is.
func TestSharedMemoryFuzz(t *testing.T) {
	onSoftware(t)
	rounds, seed := 40, uint64(time.Now().UnixNano())
	if n, err := strconv.Atoi(os.Getenv(fuzzRoundsVar)); err == nil {
		rounds = n
	}
	if n, err := strconv.ParseUint(os.Getenv(fuzzSeedVar), 10, 64); err == nil {
		seed = n
	}
	by := startBackground(t)
	defer by.stop(t)
	echoes := map[string]*echoes{}
	for _, device := range []string{"soft0", "soft0-iwarp"} {
		echoes[device] = startEchoes(flavour{listen: ListenConfig{Device: device}}.newListener(t))
	}
	ends := map[string]int{}
	for begin := 0; begin < rounds; begin += scribblerRounds {
		n := min(scribblerRounds, rounds-begin)
		first := seed + uint64(begin)
		replay := fmt.Sprintf("to replay: %s=%d %s=%d", fuzzSeedVar, first, fuzzRoundsVar, n)
		moved := by.moved.Load()
		s := startScribbler(t)
		for round := range uint64(n) {
			device := "soft0"
			if (first+round)%4 == 3 {
				device = "soft0-iwarp"
			}
			s.round(t, fmt.Sprintln(first+round, device, echoes[device].l.Addr()), replay)
		}
		s.stop(t)
		for _, v := range echoes {
			for _, err := range v.ends(t, replay) {
				name, ok := typed(err)
				require.True(t, ok, "an end of no type: %v\n%s", err, replay)
				ends[name]++
			}
		}
		require.Eventually(t, func() bool { return by.moved.Load() > moved }, patience, time.Millisecond, "the connection beside it stands still\n%s", replay)
	}
	require.True(t, len(ends) > 0 || rounds < scribblerRounds, "nobody came")
	t.Logf("seed %d, %d rounds: %v", seed, rounds, ends)
}

// scribblerRounds is how many connections a scribbler makes: those after the first may go by
// a link that it has spoiled.
const scribblerRounds = 4

// echoes are the connections of a listener, each of which sends back what comes.
type echoes struct {
	l     *Listener
	mu    sync.Mutex
	began uint64 // so far
	ended uint64
	done  []error // of those that ends has not told of
}

func startEchoes(l *Listener) *echoes {
	v := &echoes{l: l}
	go func() {
		for turn := uint64(0); ; turn++ {
			c, err := l.AcceptConn()
			if err != nil {
				return // closed
			}
			v.mu.Lock()
			v.began++
			v.mu.Unlock()
			go func() {
				err := bounce(c, turn)
				if closeErr := c.Close(); closeErr != nil {
					err = fmt.Errorf("Close: %w", closeErr)
				}
				<-c.done()
				v.mu.Lock()
				v.ended++
				v.done = append(v.done, err)
				v.mu.Unlock()
			}()
		}
	}()
	return v
}

// ends waits for the ends of all connections, whose peer has exited, and returns those that it
// has not returned before.
func (v *echoes) ends(t *testing.T, replay string) (all []error) {
	t.Helper()
	require.Eventually(t, func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		s := v.l.Stats()
		if s.Pending > 0 || v.began < s.Accepted || v.ended < v.began {
			return false
		}
		all, v.done = v.done, nil
		return true
	}, lasting, time.Millisecond, "a connection is caught\n%s", replay)
	return all
}

// A scribblerProcess is one that runs runScribbler.
type scribblerProcess struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	replies *bufio.Reader
}

func startScribbler(t *testing.T) *scribblerProcess {
	t.Helper()
	cmd := roleCommand(scribblerRole)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return &scribblerProcess{cmd, in, bufio.NewReader(out)}
}

// round has it do what line says.
func (s *scribblerProcess) round(t *testing.T, line, replay string) {
	t.Helper()
	_, err := io.WriteString(s.in, line)
	require.NoError(t, err, replay)
	over := make(chan error, 1)
	go func() { _, err := s.replies.ReadString('\n'); over <- err }()
	select {
	case err := <-over:
		require.NoError(t, err, "the scribbler, too, is an end\n%s", replay)
	case <-time.After(lasting):
		t.Fatalf("the scribbler is caught\n%s", replay)
	}
}

func (s *scribblerProcess) stop(t *testing.T) {
	t.Helper()
	stopScribbler(t, s.cmd, s.in)
}

func stopScribbler(t *testing.T, cmd *exec.Cmd, in io.Closer) {
	_ = in.Close()
	stop := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer stop.Stop()
	if err := cmd.Wait(); err != nil {
		t.Errorf("the scribbler: %v", err)
	}
}

// bounce sends back what comes, by the calls whose turn it is.
func bounce(c *Conn, round uint64) error {
	buf := make([]byte, 8192)
	for {
		var n int
		var err error
		switch round % 3 {
		case 0:
			n, err = c.Read(buf)
		case 1:
			var b []byte
			if b, err = c.Peek(1); err == nil {
				n = copy(buf, b)
				_, err = c.Discard(n)
			}
		default:
			if _, err = c.WriteTo(struct{ io.Writer }{c}); err == nil {
				err = io.EOF
			}
		}
		if err != nil {
			return err
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return err
		}
	}
}

// typed names an end of a connection as programs see it.
func typed(err error) (name string, ok bool) {
	var op *net.OpError
	switch {
	case errors.Is(err, io.EOF):
		return "EOF", true
	case !errors.As(err, &op):
		return "", false
	case errors.Is(err, ErrProtocol):
		return "ErrProtocol", true
	}
	for _, errno := range []syscall.Errno{syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, syscall.ETIMEDOUT, syscall.ENOMEM} {
		if errors.Is(err, errno) {
			return errno.Error(), true
		}
	}
	return "", false
}

func TestIsBacked(t *testing.T) {
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	defer unix.Close(fd)
	page := os.Getpagesize()
	require.NoError(t, unix.Ftruncate(fd, int64(page)))
	b, err := unix.Mmap(fd, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(b)) }()
	for length, want := range map[int]bool{page: true, page + 1: false, 2 * page: false} {
		got, err := isBacked(b[:length])
		require.NoError(t, err)
		require.Equal(t, want, got, "%d bytes", length)
	}
}
