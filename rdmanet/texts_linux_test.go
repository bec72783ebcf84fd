package rdmanet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// of drops what a call returns beside its error.
func of[T any](_ T, err error) error { return err }

func dialFrom(src net.Addr, to string) error {
	return of((&Dialer{LocalAddr: src}).Dial("rdma", to))
}

// closedDown returns an address at which somebody has listened.
func closedDown(t *testing.T) string {
	l := listening(t, &ListenConfig{})
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// failedDial is the error of a dial of 10.0.0.1:80 that err has ended.
func failedDial(err error) error {
	return opError(opDial, "rdma", nil, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 80}, dialCause(context.Background(), err))
}

func refusedBy(t *testing.T, code cm.RefusalCode) *cm.RejectedError {
	refusal := cm.NewRefusal(code, "no memory")
	private, err := refusal.MarshalBinary()
	require.NoError(t, err)
	return &cm.RejectedError{
		Addr: netip.MustParseAddrPort("10.0.0.1:80"), Reason: cm.RejectConsumer, PrivateData: private,
		Err: driver.Explain("refused by the application", syscall.ECONNREFUSED),
	}
}

// withoutDescriptors runs f while the process may have no more.
func withoutDescriptors(t *testing.T, f func() error) error {
	var was syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: was.Max}))
	defer func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was)) }()
	return f()
}

type badReader struct{}

func (badReader) Read([]byte) (int, error) { return -1, nil }

type badWriter struct{}

func (badWriter) Write([]byte) (int, error) { return -1, nil }

// A printedText is an error whose text a heading of docs/TROUBLESHOOTING.md has. It is provoked
// where that can be, and made at the lowest layer where it takes a card or another host.
type printedText struct {
	heading string
	whole   string // of the text, where it is known
	provoke func(t *testing.T) error
}

var printedTexts = []printedText{
	{"no RDMA listener on ... (is the server on plain TCP, or in another network namespace?)", "", func(t *testing.T) error {
		at := closedDown(t)
		err := of(Dial("rdma", at))
		require.EqualError(t, err, "dial rdma "+at+": connect: connection refused: no RDMA listener on soft0 (is the server on plain TCP, or in another network namespace?)")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.ErrorIs(t, err, cm.ErrRejected)
		return err
	}},
	{"nobody can listen on port 0", "dial rdma 127.0.0.1:0: connect: connection refused: nobody can listen on port 0", func(*testing.T) error {
		return of(Dial("rdma", "127.0.0.1:0"))
	}},
	{"not an address of this host, and the software device reaches no other...", "", func(t *testing.T) error {
		err := of(Dial("rdma", "192.0.2.1:9"))
		require.True(t, strings.HasPrefix(err.Error(), "dial rdma 192.0.2.1:9: soft: not an address of this host"), "%v", err)
		require.ErrorIs(t, err, ErrNoRoute)
		return err
	}},
	{"... cannot be used (on Debian and Ubuntu: apt-get install ...): ...", "", func(*testing.T) error {
		return failedDial(&cm.NoDriverError{Op: "resolve", Drivers: []*cm.DriverError{
			{Driver: "ibv", Err: &verbs.LibraryError{Library: "libibverbs.so.1", Package: "libibverbs1", Err: errors.New("it is not there")}},
		}})
	}},
	{"the software driver has no device ..., only soft0 and soft0-iwarp", `dial rdma 127.0.0.1:9: the software driver has no device "nosuch9", only soft0 and soft0-iwarp`, func(t *testing.T) error {
		err := of((&Dialer{Device: "nosuch9"}).Dial("rdma", "127.0.0.1:9"))
		require.ErrorIs(t, err, ErrNoDevice)
		text, _, _ := strings.Cut(err.Error(), "; ") // the other drivers have no such device either
		return errors.New(strings.Replace(text, "soft: ", "", 1))
	}},
	{"no common protocol version: ... (update the older one)", "dial rdma 10.0.0.1:80: no common protocol version: this end speaks 1, the peer 2 to 3 (update the older one)", func(t *testing.T) error {
		err := failedDial(&cm.VersionError{LocalMin: 1, LocalMax: 1, PeerMin: 2, PeerMax: 3})
		require.ErrorIs(t, err, cm.ErrVersion)
		return err
	}},
	{"no checksums: one end wants them and the other is too old to know them; update it, or do without", "", func(*testing.T) error {
		return failedDial(of(cm.Checksums(cm.FeatureChecksum|cm.FeatureWantChecksum, 0)))
	}},
	{"the peer refuses: ...", `dial rdma 10.0.0.1:80: connect: connection refused: the peer refuses: shutting down: "no memory"`, func(t *testing.T) error {
		err := failedDial(refusedBy(t, cm.RefusedShutdown))
		require.ErrorIs(t, err, cm.ErrRefused)
		return err
	}},
	{"the listener had no resources: ...", "", func(t *testing.T) error {
		return opError(opDial, "rdma", nil, nil, endedDial(context.DeadlineExceeded, refusedBy(t, cm.RefusedResources)))
	}},
	{"clients wait: ...", "accept rdma: accept4: too many open files: clients wait: socket: too many open files", func(*testing.T) error {
		l := &Listener{network: "rdma"}
		err := l.acceptShortage(os.NewSyscallError("socket", syscall.EMFILE))
		err.(*net.OpError).Addr = nil
		return err
	}},
	{"the listener has no place for the connection now", "dial rdma: i/o timeout: the listener has no place for the connection now", func(t *testing.T) error {
		return opError(opDial, "rdma", nil, nil, endedDial(context.DeadlineExceeded, verbs.ErrTryAgain))
	}},
	{"the listener gave the dial no place", "", func(t *testing.T) error {
		l := listening(t, &ListenConfig{Backlog: 1, Logger: quiet})
		at := l.Addr().String()
		first, err := Dial("rdma", at) // which has the only place
		require.NoError(t, err)
		defer first.Close()
		defer func(was time.Duration) { linkPatience = was }(linkPatience)
		linkPatience = 50 * time.Millisecond
		err = of(Dial("rdma", at))
		require.EqualError(t, err, "dial rdma "+at+": connect: connection timed out: the listener gave the dial no place")
		return err
	}},
	{"another connection of this process to that listener has the port", "", func(t *testing.T) error {
		l := listening(t, &ListenConfig{})
		first, err := Dial("rdma", l.Addr().String())
		require.NoError(t, err)
		src := first.LocalAddr()
		require.NoError(t, first.Close())
		<-first.(*Conn).done()
		d := Dialer{LocalAddr: src, Timeout: hanging}
		one, err := d.Dial("rdma", l.Addr().String())
		require.NoError(t, err)
		defer one.Close()
		return dialFrom(src, l.Addr().String())
	}},
	{"i/o timeout", "", func(t *testing.T) error {
		l := listening(t, &ListenConfig{})
		err := of((&Dialer{Timeout: 1}).Dial("rdma", l.Addr().String()))
		require.EqualError(t, err, "dial rdma "+l.Addr().String()+": i/o timeout")
		return err
	}},
	{"what was written may not have arrived yet (it is sent on while this process runs; SetLinger has Close wait longer)", "", func(t *testing.T) error {
		err := opError(opClose, "rdma", nil, nil, errUnconfirmed)
		require.True(t, err.(net.Error).Timeout())
		return err
	}},
	{"operation was canceled", "", func(t *testing.T) error {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return of(new(Dialer).DialContext(ctx, "rdma", "127.0.0.1:9"))
	}},
	{"... is out of bounds: choose ...", "listen rdma: ListenConfig.Backlog -1 is out of bounds: choose 1 or more, or 0 for the system's", func(*testing.T) error {
		return of((&ListenConfig{Backlog: -1}).Listen(context.Background(), "rdma", loopbackAddr))
	}},
	{"... is out of bounds: choose ...", "", func(t *testing.T) error {
		client, _ := pair(t)
		err := client.SetKeepAlivePeriod(32768 * time.Second)
		require.ErrorContains(t, err, "keepalive Idle 9h6m8s is out of bounds: choose at most 9h6m7s")
		require.ErrorIs(t, err, syscall.EINVAL)
		return err
	}},
	{"....MaxReadBuffer ... is smaller than ReadBuffer ...", "dial rdma: Dialer.MaxReadBuffer 4096 is smaller than ReadBuffer 8192", func(*testing.T) error {
		return of((&Dialer{ReadBuffer: 8192, MaxReadBuffer: 4096}).Dial("rdma", "127.0.0.1:9"))
	}},
	{"RDMA is switched off (unset RDMANET_DEVICE, which is none)", "dial rdma 127.0.0.1:9: RDMA is switched off (unset RDMANET_DEVICE, which is none)", func(t *testing.T) error {
		defer os.Setenv("RDMANET_DEVICE", os.Getenv("RDMANET_DEVICE"))
		require.NoError(t, os.Setenv("RDMANET_DEVICE", "none"))
		return of(Dial("rdma", "127.0.0.1:9"))
	}},
	{"RDMA is switched off (by the option Device, which is none)", "listen rdma 127.0.0.1:9: RDMA is switched off (by the option Device, which is none)", func(*testing.T) error {
		return of((&ListenConfig{Device: "none"}).Listen(context.Background(), "rdma", "127.0.0.1:9"))
	}},
	{"unknown network ... (there are rdma, rdma4, rdma6, tcp, tcp4, tcp6)", "dial quic: unknown network quic (there are rdma, rdma4, rdma6, tcp, tcp4, tcp6)", func(t *testing.T) error {
		err := of(Dial("quic", "127.0.0.1:9"))
		require.ErrorIs(t, err, net.UnknownNetworkError("quic"))
		return err
	}},
	{"missing address", "dial rdma: missing address", func(*testing.T) error { return of(Dial("rdma", "")) }},
	{"no suitable address found", "dial rdma4: address ::1: no suitable address found", func(*testing.T) error { return of(Dial("rdma4", "[::1]:9")) }},
	{"mismatched local address type", "", func(*testing.T) error { return dialFrom(&net.UDPAddr{}, "127.0.0.1:9") }},
	{"another RDMA listener or dialer has the port on ...", "", func(t *testing.T) error {
		at := listening(t, &ListenConfig{}).Addr().String()
		err := of(Listen("rdma", at))
		require.EqualError(t, err, "listen rdma "+at+": bind: address already in use: another RDMA listener or dialer has the port on soft0")
		require.ErrorIs(t, err, syscall.EADDRINUSE)
		return err
	}},
	{"an RDMA listener or dialer has the port on ... by an address that covers it or that it covers", "", func(t *testing.T) error {
		_, port, err := net.SplitHostPort(listening(t, &ListenConfig{}).Addr().String())
		require.NoError(t, err)
		err = of(Listen("rdma4", "0.0.0.0:"+port))
		require.ErrorIs(t, err, syscall.EADDRINUSE)
		require.ErrorContains(t, err, "an RDMA listener or dialer has the port on soft0 by an address that covers it or that it covers")
		return err
	}},
	{"(nor by RDMA: ...)", "dial tcp 127.0.0.1:9: connect: connection refused (nor by RDMA: RDMA is switched off (by the option Device, which is none))", func(t *testing.T) error {
		err := of((&Dialer{Device: "none", Logger: quiet}).Dial("tcp", "127.0.0.1:9"))
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		return err
	}},
	{"and it cannot be shared: ...", "", func(t *testing.T) error {
		at := listening(t, &ListenConfig{}).Addr().String()
		err := of((&ListenConfig{ReusePort: true}).Listen(context.Background(), "rdma", at))
		require.ErrorContains(t, err, "cannot be shared: its listener is without ListenConfig.ReusePort")
		return err
	}},
	{"not an address of this host...", "", func(t *testing.T) error {
		err := of(Listen("rdma", "192.0.2.1:9"))
		require.True(t, strings.HasPrefix(err.Error(), "listen rdma 192.0.2.1:9: bind: cannot assign requested address: soft: not an address of this host"), "%v", err)
		return err
	}},
	{"cannot allocate RDMA memory: ...", "", outOfMemory},
	{"more would exceed the process's limit of ...", "", outOfMemory},
	{"(raise RLIMIT_NOFILE)", "", func(t *testing.T) error {
		at := listening(t, &ListenConfig{}).Addr().String()
		err := withoutDescriptors(t, func() error { return of((&Dialer{TOS: 200, Timeout: hanging}).Dial("rdma", at)) })
		require.ErrorIs(t, err, syscall.EMFILE)
		require.NotContains(t, err.Error(), "memory")
		return err
	}},
	{"(raise RLIMIT_NOFILE)", "", func(t *testing.T) error {
		client, _ := pair(t)
		raw, err := client.SyscallConn()
		require.NoError(t, err)
		return withoutDescriptors(t, func() error { return raw.Control(func(uintptr) {}) })
	}},
	{"RDMA peer is gone...", "", func(*testing.T) error { return newConnError(syscall.ECONNRESET, ErrPeerGone) }},
	{"connection reset by peer", "", func(t *testing.T) error {
		client, server := pair(t)
		require.NoError(t, server.SetLinger(0))
		require.NoError(t, server.Close())
		return of(client.Read(make([]byte, 1)))
	}},
	{"the listener has not taken the stream..., and dialling it again failed: ...", "", func(t *testing.T) (err error) {
		// It may have heard of the stream before it closed, and reset it.
		again(t, "a stream that is not taken", func() bool { return err != nil && strings.Contains(err.Error(), "has not taken") }, func() {
			l := listening(t, &ListenConfig{})
			client, dialErr := Dial("rdma", l.Addr().String())
			require.NoError(t, dialErr)
			defer client.Close()
			require.NoError(t, l.Close())
			err = of(client.Read(make([]byte, 1)))
		})
		return err
	}},
	{"broken pipe", "", func(t *testing.T) error {
		client, _ := pair(t)
		require.NoError(t, client.CloseWrite())
		return of(client.Write([]byte("x")))
	}},
	{"use of closed network connection", "", func(t *testing.T) error {
		client, _ := pair(t)
		require.NoError(t, client.Close())
		return of(client.Read(make([]byte, 1)))
	}},
	{"no such device: ... was removed", `accept rdma: no such device: device "mlx5_0" was removed`, func(*testing.T) error {
		return opError(opAccept, "rdma", nil, nil, newConnError(syscall.ENODEV, &cm.DeviceRemovedError{Device: "mlx5_0"}))
	}},
	{"peer broke the protocol...", "", func(*testing.T) error { return newConnError(syscall.ECONNABORTED, verbs.ErrProtocol) }},
	{"wrong checksum...", "", func(*testing.T) error { return newConnError(syscall.ECONNRESET, ErrChecksum) }},
	{"commit without a matching reserve: ...", "", func(t *testing.T) error {
		client, _ := pair(t)
		return client.Commit(1)
	}},
	{"cannot reserve ... bytes: choose ...", "", func(t *testing.T) error {
		client, _ := pair(t)
		return of(client.Reserve(0))
	}},
	{"the writer returned an impossible count", "", func(t *testing.T) error {
		client, server := pair(t)
		write(t, server, 10)
		return of(client.WriteTo(badWriter{}))
	}},
	{"the reader returned an impossible count", "", func(t *testing.T) error {
		client, _ := pair(t)
		return of(client.ReadFrom(badReader{}))
	}},
	{"... without RDMA (...): ...", "", func(t *testing.T) error {
		tcp, err := net.Listen("tcp", loopbackAddr)
		require.NoError(t, err)
		defer tcp.Close()
		var told error
		d := Dialer{RetryRDMA: -1, Logger: quiet, OnFallback: func(e *FallbackError) { told = e }}
		c, err := d.Dial("tcp", tcp.Addr().String())
		require.NoError(t, err)
		require.NoError(t, c.Close())
		require.EqualError(t, told, "dial tcp "+tcp.Addr().String()+" without RDMA (refused): connect: connection refused: no RDMA listener on soft0 (is the server on plain TCP, or in another network namespace?)")
		return told
	}},
}

func outOfMemory(t *testing.T) error {
	waitForNoMemory(t)
	at := listening(t, &ListenConfig{}).Addr().String()
	defer SetMemoryLimit(SetMemoryLimit(1000))
	return of((&Dialer{TOS: 204}).Dial("rdma", at))
}

// printedBelow are texts that take a card, another host, user or system, or a hostile peer: tests of
// the packages that print them provoke them.
var printedBelow = map[string][]string{
	"../cm": {"found no port that is free on every device in ... tries (name a port, or one device)"},
	"../internal/link": {
		"inline data of ... bytes, a record has ...", "queues of ... requests and ... completions, a lane needs ...",
		"it does not answer", "no keepalive within ...", "the link has ended", "the listener was closed", "the listener takes no more streams",
		"the peer has no memory for the stream", "the listener has another stream of that port",
		"the peer says that this end broke the protocol",
	},
	"../internal/link/hello": {"malformed first word: ...", "one end rings doorbells with WRITE_WITH_IMM and the other with SEND"},
	"../verbs":               {"work request failed: ..."},
	"../internal/verbs/ibv": {
		"no RDMA device leads there: ...", "reached from ..., which belongs to no RDMA device", "reached from ... on device ..., not on ...",
		"there is no RDMA card, or the kernel module ib_uverbs is not loaded", "(is the kernel module rdma_ucm loaded, and is there an RDMA device?)",
		"(the process needs read and write access to /dev/infiniband)", "it is too old", "this program was built without libibverbs",
		"(rdma link lists what there is)", "the host did not answer", "the listener gave the connection up before its answer was read here",
		"no RDMA device has a loopback address", "RLIMIT_MEMLOCK",
		"(the process has changed its user, groups or capabilities since it first used RDMA)", "(the device has no more, or the control group: see its rdma.max)",
	},
	"../internal/verbs/soft": {
		"the software device needs linux on amd64 or arm64",
		"the listener belongs to another user (its ListenConfig.AnyUser permits that)", "the listener belongs to user ... (Dialer.AnyUser permits that)",
		"the listener hung up before it answered", "the listener failed: ...", "ports below ... need CAP_NET_BIND_SERVICE",
		"no such file or directory (mount -t proc proc /proc)",
	},
	"../internal/verbs/soft/control": {"the peer speaks version ... of the software device's protocol, this library speaks ...: update the older of the two"},
	"../internal/verbs/soft/shm": {
		"membarrier: ... (a seccomp filter that came later must go on allowing it)", "(a seccomp filter has to allow it)", "(raise RLIMIT_FSIZE)",
	},
}

// headingTexts are the texts that docs/TROUBLESHOOTING.md explains.
func headingTexts(t *testing.T) (texts []string) {
	heading, text := regexp.MustCompile("(?m)^### (.*)$"), regexp.MustCompile("`([^`]+)`")
	for _, h := range heading.FindAllStringSubmatch(readDoc(t, "TROUBLESHOOTING.md"), -1) {
		for _, m := range text.FindAllStringSubmatch(h[1], -1) {
			texts = append(texts, m[1])
		}
	}
	require.Greater(t, len(texts), 60)
	return texts
}

// TestErrorTextsArePrinted provokes what docs/TROUBLESHOOTING.md explains: the text of each error
// ends as a heading has it.
func TestErrorTextsArePrinted(t *testing.T) {
	onSoftware(t)
	explained := headingTexts(t)
	for _, p := range printedTexts {
		t.Run(p.heading, func(t *testing.T) {
			require.Contains(t, explained, p.heading, "it is printed and not explained")
			err := p.provoke(t)
			require.Error(t, err)
			pattern := strings.ReplaceAll(regexp.QuoteMeta(p.heading), `\.\.\.`, ".*")
			require.Regexp(t, "(^|[ :])"+pattern+"$", err.Error())
			require.NotContains(t, err.Error(), "\n")
			if p.whole != "" {
				require.EqualError(t, err, p.whole)
			}
		})
	}
}

// TestErrorTextsAreTested: what docs/TROUBLESHOOTING.md explains, and TestErrorTextsArePrinted does not
// provoke, is in the tests of the package that prints it.
func TestErrorTextsAreTested(t *testing.T) {
	explained := headingTexts(t)
	tested := map[string]bool{}
	for dir, texts := range printedBelow {
		tests := testsOf(t, dir)
		for _, text := range texts {
			assert.Contains(t, explained, text, "it is no longer explained")
			for part := range strings.SplitSeq(text, "...") {
				assert.Contains(t, tests, strings.Trim(part, " "), "%q is explained, and no test of %s prints it", text, dir)
			}
			tested[text] = true
		}
	}
	for _, text := range explained {
		printed := slices.ContainsFunc(printedTexts, func(p printedText) bool { return p.heading == text })
		assert.True(t, printed || tested[text], "%q is explained and not printed by a test", text)
	}
}
