package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/internal/verbs/faulty"
)

// A server in another process whose resources are few.
type (
	RemoteScarce struct {
		Network     string // "rdma", or "tcp" of package net
		HTTP        bool   // by http.Server
		Descriptors uint64 // RLIMIT_NOFILE, unless 0
		Left        int    // or so many more than it has, unless 0
		Connections int    // what SetMemoryLimit has room for, unless 0
		Mappings    int    // what the device has address space for, unless 0
	}
	RemoteScarceCounts struct {
		Accepted int
		Errors   int // temporary ones of Accept
		Text     string
		Stats    ListenerStats
	}
)

// scarceServer is what Remote.ServeScarce has started.
var scarceServer struct {
	l         net.Listener
	serving   sync.WaitGroup
	restore   func()
	accepted  atomic.Int64
	temporary atomic.Int64
	text      atomic.Value
}

// observedListener counts what Accept returns.
type observedListener struct{ net.Listener }

func (l observedListener) Accept() (net.Conn, error) {
	s := &scarceServer
	c, err := l.Listener.Accept()
	if err == nil {
		s.accepted.Add(1)
	} else if temporary(err) {
		s.temporary.Add(1)
		s.text.Store(err.Error())
	}
	return c, err
}

// ServeScarce limits the process, and serves echo or HTTP.
func (r *Remote) ServeScarce(a RemoteScarce, at *string) error {
	s := &scarceServer
	var l net.Listener
	var err error
	if a.Network == "tcp" {
		l, err = net.Listen("tcp", loopbackAddr)
	} else {
		openDevices()
		lc := ListenConfig{Logger: slog.New(slog.DiscardHandler)}
		if a.Mappings > 0 {
			lc.Device = failing0.Name()
		}
		l, err = lc.Listen(context.Background(), a.Network, testAddr())
	}
	if err != nil {
		return err
	}
	s.l = observedListener{l}
	s.restore = func() {}
	if a.Connections > 0 {
		before := SetMemoryLimit(int64(a.Connections * firstMemory()))
		s.restore = func() { SetMemoryLimit(before) }
	}
	if a.Mappings > 0 {
		failing0.OnAcquire(func(what string) error {
			if what == faulty.AllocMemory && failing0.Memories() >= a.Mappings {
				return os.NewSyscallError("mmap", syscall.ENOMEM)
			}
			return nil
		})
		s.restore = func() { failing0.OnAcquire(nil) }
	}
	if a.Left > 0 {
		a.Descriptors = limitLeaving(a.Left)
	}
	if a.Descriptors > 0 {
		if s.restore, err = setLimit(syscall.RLIMIT_NOFILE, a.Descriptors); err != nil {
			return err
		}
	}
	*at = l.Addr().String()
	s.serving.Go(func() {
		if a.HTTP {
			server := http.Server{
				Handler:  http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }),
				ErrorLog: log.New(io.Discard, "", 0),
			}
			_ = server.Serve(s.l)
			return
		}
		for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
			c, err := s.l.Accept()
			switch {
			case err == nil:
				pause = 5 * time.Millisecond
				s.serving.Go(func() {
					_, _ = io.Copy(c, c)
					_ = c.Close()
				})
			case temporary(err):
				time.Sleep(pause)
			default:
				return
			}
		}
	})
	return nil
}

// EndScarce ends it, and returns what it counted.
func (r *Remote) EndScarce(_ int, counts *RemoteScarceCounts) error {
	s := &scarceServer
	s.restore()
	if l, ok := s.l.(observedListener).Listener.(*Listener); ok {
		counts.Stats = l.Stats()
	}
	_ = s.l.Close()
	s.serving.Wait()
	counts.Accepted, counts.Errors = int(s.accepted.Load()), int(s.temporary.Load())
	counts.Text, _ = s.text.Load().(string)
	return nil
}

// AwaitScarcity returns when an Accept has failed for lack of something, or after patience.
func (r *Remote) AwaitScarcity(_ int, errors *int) error {
	for end := time.Now().Add(patience); *errors == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		*errors = int(scarceServer.temporary.Load())
	}
	return nil
}

// hold is how long each client holds its connection then: RDMANET_HOLD, or not for long.
var hold = sync.OnceValue(func() time.Duration {
	d, err := time.ParseDuration(os.Getenv("RDMANET_HOLD"))
	if err != nil {
		return 50 * time.Millisecond
	}
	return d
})

// crowdOf has so many clients dial at once, say something and hold their connections until
// the server was short of something and for a while, and returns how many failed.
func crowdOf(t *testing.T, n int, network, at string, short <-chan int) int {
	t.Helper()
	var clients sync.WaitGroup
	var failed atomic.Int64
	for i := range n {
		clients.Go(func() {
			if err := oneOfCrowd(network, at, i, short); err != nil {
				if failed.Add(1) <= 3 {
					t.Logf("client %d: %v", i, err)
				}
			}
		})
	}
	within(t, hanging, "the clients", clients.Wait)
	return int(failed.Load())
}

// hanging is when something hangs for sure.
const hanging = 2 * time.Minute

// unlike returns a Dialer whose connections share no link with those of others.
func unlike(i int) *Dialer { return &Dialer{TOS: uint8(i), Timeout: hanging} }

func oneOfCrowd(network, at string, i int, short <-chan int) error {
	dial := unlike(i).Dial
	if network == "tcp" {
		dial = (&net.Dialer{Timeout: hanging}).Dial
	}
	c, err := dial(network, at)
	if err != nil {
		return err
	}
	defer c.Close()
	said := fmt.Sprintf("client %d", i)
	if _, err := c.Write([]byte(said)); err != nil {
		return err
	}
	heard := make([]byte, len(said))
	if _, err := io.ReadFull(c, heard); err != nil {
		return err
	}
	if string(heard) != said {
		return fmt.Errorf("said %q and heard %q", said, heard)
	}
	<-short
	time.Sleep(hold())
	return nil
}

// TestShortageCrowd has 200 clients come to a server that has room for a few at a time: by
// descriptors, by memory or by address space. All get through, as by TCP, and it leaks
// nothing, neither descriptors nor mappings, as it says itself when it ends. The device is what
// finds no address space: with RLIMIT_AS, which knows no difference, the mapping that fails could
// as well be one of Go's runtime, for a thread or the heap, which ends the process then.
func TestShortageCrowd(t *testing.T) {
	onSoftware(t)
	crowds := []shortCrowd{
		{"TCP, 100 descriptors", RemoteScarce{Network: "tcp", Descriptors: 100}},
		{"100 descriptors", RemoteScarce{Network: "rdma", Descriptors: 100}},
		{"memory of 20 connections", RemoteScarce{Network: "rdma", Connections: 20}},
		{"address space for 40 mappings", RemoteScarce{Network: "rdma", Mappings: 40}},
	}
	shortCrowds(t, 200, crowds)
}

// TestShortageOnDevice is such a crowd on the device that the tests are run on, as a device of
// the kernel's; a small one on the software device, of which the others are.
func TestShortageOnDevice(t *testing.T) {
	clients := 30
	if os.Getenv("RDMANET_TEST_ADDR") != "" {
		clients = 200
	}
	shortCrowds(t, clients, []shortCrowd{
		{"24 descriptors", RemoteScarce{Network: "rdma", Left: 24}},
		{"memory of 5 connections", RemoteScarce{Network: "rdma", Connections: 5}},
	})
}

type shortCrowd struct {
	name   string
	server RemoteScarce
}

// busyVar says beside how many processes that do nothing but run crowds come to a server that
// is short of something: none by default, and four in make test-shortage.
const busyVar = "RDMANET_BUSY"

func besideBusy(t *testing.T) {
	if n, err := strconv.Atoi(os.Getenv(busyVar)); err == nil {
		keepBusy(t, n)
	}
}

func shortCrowds(t *testing.T, clients int, crowds []shortCrowd) {
	besideBusy(t)
	for _, s := range crowds {
		t.Run(s.name, func(t *testing.T) {
			r := startRemote(t)
			at := call[string](r, "ServeScarce", s.server)
			began := time.Now()
			failed := crowdOf(t, clients, s.server.Network, at, begin[int](r, "AwaitScarcity", 0))
			took := time.Since(began)
			counts := call[RemoteScarceCounts](r, "EndScarce", 0)
			t.Logf("%v; %+v", took.Round(time.Millisecond), counts)
			require.Zero(t, failed)
			require.Equal(t, clients, counts.Accepted)
			require.Positive(t, counts.Errors, "no shortage")
			if s.server.Network == "rdma" {
				require.GreaterOrEqual(t, counts.Stats.Shortages, uint64(counts.Errors))
				if deviceOr("") == "" || deviceOr("") == "soft0" { // elsewhere some ask twice
					require.Zero(t, counts.Stats.Failed)
				}
			}
		})
	}
}

// TestShortageHTTPServer has an http.Server live through lack of descriptors.
func TestShortageHTTPServer(t *testing.T) {
	onSoftware(t)
	besideBusy(t)
	r := startRemote(t)
	at := call[string](r, "ServeScarce", RemoteScarce{Network: "rdma", HTTP: true, Descriptors: 60})
	short := begin[int](r, "AwaitScarcity", 0)
	post := func(i int) error {
		client := http.Client{Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return unlike(i).DialContext(ctx, "rdma", at)
			},
		}}
		said := fmt.Sprintf("client %d", i)
		rep, err := client.Post("http://"+at, "text/plain", &slowReader{said: said, short: short})
		if err != nil {
			return err
		}
		defer rep.Body.Close()
		heard, err := io.ReadAll(rep.Body)
		if err == nil && (rep.StatusCode != http.StatusOK || string(heard) != said) {
			err = fmt.Errorf("status %d, %q", rep.StatusCode, heard)
		}
		return err
	}
	var users sync.WaitGroup
	errs := make([]error, 100)
	for i := range errs {
		users.Go(func() { errs[i] = post(i) })
	}
	within(t, hanging, "the users", users.Wait)
	require.NoError(t, errors.Join(errs...))
	require.NoError(t, post(-1), "afterwards")
	counts := call[RemoteScarceCounts](r, "EndScarce", 0)
	require.Positive(t, counts.Errors, "no shortage")
}

// A slowReader is a request that keeps its connection until the server was short of something,
// and for a while.
type slowReader struct {
	said  string
	short <-chan int
}

func (r *slowReader) Read(b []byte) (int, error) {
	if r.said == "" {
		return 0, io.EOF
	}
	<-r.short
	time.Sleep(hold())
	n := copy(b, r.said)
	r.said = r.said[n:]
	return n, nil
}

// TestShortageAcceptError compares what Accept returns without descriptors with what that
// of package net does, by what programs ask of it.
func TestShortageAcceptError(t *testing.T) {
	check := func(t *testing.T, err error, addr net.Addr, network string, errno syscall.Errno) {
		t.Helper()
		op, ok := err.(*net.OpError)
		require.True(t, ok, "%T: %v", err, err)
		require.Equal(t, "accept", op.Op)
		require.Equal(t, network, op.Net)
		require.Nil(t, op.Source)
		require.Equal(t, addr, op.Addr)
		require.True(t, temporary(err), "%v", err)
		require.False(t, op.Timeout())
		require.ErrorIs(t, err, errno)
		require.NotErrorIs(t, err, net.ErrClosed)
	}
	t.Run("descriptors", func(t *testing.T) { runAs(t, "accept error") })
	t.Run("memory", func(t *testing.T) {
		onSoftware(t)
		l, err := (&ListenConfig{Device: failing0.Name()}).listen(t.Context(), "rdma", loopbackAddr)
		require.NoError(t, err)
		defer l.Close()
		var want atomic.Bool
		want.Store(true)
		failing0.OnAcquire(func(what string) error {
			if want.Load() && what == faulty.RegMR {
				return syscall.ENOMEM
			}
			return nil
		})
		defer failing0.OnAcquire(nil)
		done := begun(func() error {
			c, err := (&Dialer{Device: "soft0"}).dial(context.Background(), "rdma", l.Addr().String())
			if err == nil {
				err = c.Close()
			}
			return err
		})
		_, err = l.Accept()
		check(t, err, l.Addr(), "rdma", syscall.ENOMEM)
		require.ErrorContains(t, err, "accept rdma "+l.Addr().String()+": accept4: cannot allocate memory")
		_, err = l.Accept() // the next try
		check(t, err, l.Addr(), "rdma", syscall.ENOMEM)
		want.Store(false)
		c, err := acceptServed(l)
		require.NoError(t, err)
		requireClosed(t, c)
		require.NoError(t, <-done)
		s := l.Stats()
		require.GreaterOrEqual(t, s.Shortages, uint64(2))
		require.Zero(t, s.Refused+s.Failed)
	})
}

func init() {
	roles["accept error"] = reporting(acceptErrors)
	roles["one client"] = reporting(oneClient)
}

// clientVar says where the role "one client" dials.
const clientVar = "RDMANET_TEST_CLIENT"

// oneClient waits until it is served.
func oneClient() error {
	dial, network := Dial, "rdma"
	if os.Getenv(clientVar+"_NETWORK") != "" {
		dial, network = net.Dial, "tcp"
	}
	c, err := dial(network, os.Getenv(clientVar))
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		return fmt.Errorf("not the end: %w", err)
	}
	return nil
}

// acceptErrors takes all descriptors away and has clients come that were there before.
func acceptErrors() error {
	openDevices()
	tcp, err := net.Listen("tcp", loopbackAddr)
	if err != nil {
		return err
	}
	defer tcp.Close()
	l, err := Listen("rdma", testAddr())
	if err != nil {
		return err
	}
	defer l.Close()
	listeners := []net.Listener{tcp, l}
	var clients []*exec.Cmd
	for _, l := range listeners {
		c := roleCommand("one client")
		c.Env = append(c.Env, clientVar+"="+l.Addr().String())
		if l == net.Listener(tcp) {
			c.Env = append(c.Env, clientVar+"_NETWORK=tcp")
		}
		if err := c.Start(); err != nil {
			return err
		}
		clients = append(clients, c)
	}
	restore, err := setLimit(syscall.RLIMIT_NOFILE, limitLeaving(0))
	if err != nil {
		return err
	}
	_, tcpErr := tcp.Accept()
	_, rdmaErr := l.Accept()
	restore()
	var served sync.WaitGroup
	for _, l := range listeners {
		served.Go(func() {
			for {
				c, err := l.Accept()
				if err == nil {
					_ = c.Close()
					return
				}
			}
		})
	}
	served.Wait()
	for _, c := range clients {
		if err := c.Wait(); err != nil {
			return err
		}
	}
	var a, b *net.OpError
	if !errors.As(tcpErr, &a) || !errors.As(rdmaErr, &b) || a != tcpErr || b != rdmaErr { //nolint:errorlint // identity is the point
		return fmt.Errorf("not both a *net.OpError: %T %v, %T %v", tcpErr, tcpErr, rdmaErr, rdmaErr)
	}
	same := a.Op == b.Op && a.Source == b.Source && a.Timeout() == b.Timeout() && temporary(a) && temporary(b) &&
		errors.Is(a, syscall.EMFILE) && errors.Is(b, syscall.EMFILE) && fmt.Sprintf("%T", a.Err) == fmt.Sprintf("%T", b.Err) &&
		b.Addr.String() == l.Addr().String()
	if !same {
		return fmt.Errorf("TCP says %#v, RDMA %#v: %v; %v", a, b, a, b)
	}
	return nil
}

// TestShortageOfEach has each call fail by which a listener makes what it needs for a client,
// with each errno of a shortage: the client waits until it succeeds, and nothing is left of
// the tries.
func TestShortageOfEach(t *testing.T) {
	onSoftware(t)
	requireNothingLives(t, failing0) // of tests before
	before := leaktest.Take()
	l, err := (&ListenConfig{Device: failing0.Name(), Logger: slog.New(slog.DiscardHandler)}).listen(t.Context(), "rdma", loopbackAddr)
	require.NoError(t, err)
	defer l.Close()
	alive := failing0.Live()
	defer failing0.OnAcquire(nil)
	released := func() {
		t.Helper()
		require.Eventually(t, func() bool { return failing0.Live() == alive }, patience, time.Millisecond, "%s and not %s", failing0.Live(), alive)
	}
	shortages := uint64(0)
	for _, what := range []string{faulty.QueryDevice, faulty.AllocMemory, faulty.AllocPD, faulty.RegMR, faulty.Channel, faulty.CreateCQ, faulty.CreateQP, faulty.Accept} {
		for _, errno := range []syscall.Errno{syscall.ENOMEM, syscall.EMFILE, syscall.EAGAIN} {
			var tries atomic.Int32
			failing0.OnAcquire(func(call string) error {
				if call == what && tries.Add(1) <= 3 {
					return fmt.Errorf("%s: %w", call, errno)
				}
				return nil
			})
			client := begun(func() error {
				c, err := (&Dialer{Device: "soft0", Timeout: patience}).dial(context.Background(), "rdma", l.Addr().String())
				if err == nil {
					err = c.Close()
				}
				return err
			})
			require.NoError(t, l.SetDeadline(time.Now().Add(patience)))
			c, err := acceptServed(l)
			require.NoError(t, err, "%s %v", what, errno)
			requireClosed(t, c)
			require.NoError(t, <-client, "%s %v", what, errno)
			require.Greater(t, tries.Load(), int32(3))
			s := l.Stats()
			require.Equal(t, shortages+3, s.Shortages, "%s %v", what, errno)
			require.Zero(t, s.Failed, "%s %v", what, errno)
			shortages = s.Shortages
			released() // so that the next one takes it all, a link too
		}
	}
	require.NoError(t, l.Close())
	require.Empty(t, before.Wait(nil))
}
