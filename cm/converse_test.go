package cm

import (
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// tcpVar is where the process that is asked to converse finds the other by TCP; by
// default it has its standard input and output.
const tcpVar = "CM_TEST_TCP"

// streams are the standard input and output of a process.
type streams struct {
	io.ReadCloser
	w io.WriteCloser
}

func (s streams) Write(b []byte) (int, error) { return s.w.Write(b) }

func (s streams) Close() error {
	_ = s.w.Close()
	return s.ReadCloser.Close()
}

func outOfBand() (io.ReadWriteCloser, error) {
	to := os.Getenv(tcpVar)
	if to == "" {
		return streams{os.Stdin, os.Stdout}, nil
	}
	return net.DialTimeout("tcp", to, talkPatience)
}

// asProcess is this test binary as the end that is written to.
func asProcess(t *testing.T, device string, local netip.Addr) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	// Under the race detector a process would sleep for a second before it ends.
	cmd.Env = append(os.Environ(), converseVar+"="+local.String(), deviceVar+"="+device, "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	return cmd
}

func TestSoftConversation(t *testing.T) {
	needSoft(t)
	testConversations(t, "soft0", loopback)
}

// testConversations brings up QPs by hand at an address of a device.
func testConversations(t *testing.T, device string, local netip.Addr) {
	t.Run("one process", func(t *testing.T) { testOneProcess(t, device, local) })
	t.Run("two processes by pipe", func(t *testing.T) {
		cmd := asProcess(t, device, local)
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		err = converse(streams{out, in}, device, local, true)
		require.NoError(t, cmd.Wait())
		require.NoError(t, err)
	})
	t.Run("two processes by TCP", func(t *testing.T) {
		// It listens before the other process is there to connect.
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		require.NoError(t, l.(*net.TCPListener).SetDeadline(time.Now().Add(talkPatience)))
		cmd := asProcess(t, device, local)
		cmd.Env = append(cmd.Env, tcpVar+"="+l.Addr().String())
		require.NoError(t, cmd.Start())
		c, err := l.Accept()
		require.NoError(t, err)
		defer c.Close()
		err = converse(c, device, local, true)
		require.NoError(t, cmd.Wait())
		require.NoError(t, err)
	})
	t.Run("attributes", func(t *testing.T) { testBroughtUp(t, device, local) })
	t.Run("wrong GID", func(t *testing.T) { testWrongGID(t, device, local) })
	t.Run("wrong QPN", func(t *testing.T) {
		testUnheard(t, device, local, func(remote *QPAddr) { remote.QPN = 2 + (remote.QPN+1<<22)%(bits24-2) })
	})
	t.Run("nobody's GID", func(t *testing.T) {
		nobody := verbs.GIDFromAddr(local)
		nobody[15] ^= 0x40
		if local.IsLoopback() { // those belong to the host, all of them
			nobody = verbs.GIDFromAddr(netip.MustParseAddr("192.0.2.1"))
		}
		testUnheard(t, device, local, func(remote *QPAddr) { remote.GID = nobody })
	})
	if d, err := PortFor(device, local); err == nil && d.Device.Transport() == verbs.TransportSoftware {
		return // it has no packets to number
	}
	t.Run("wrong PSN", func(t *testing.T) {
		testUnheard(t, device, local, func(remote *QPAddr) { remote.PSN = (remote.PSN - 1000) & bits24 })
	})
}

func testOneProcess(t *testing.T, device string, local netip.Addr) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			defer c.Close()
			err = converse(c, device, local, false)
		}
		done <- err
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	err = converse(c, device, local, true)
	require.NoError(t, <-done)
	require.NoError(t, err)
}

// talkers makes two ends that are not connected yet.
func talkers(t *testing.T, device string, local netip.Addr, param *BringUpParam) (a, b *talker) {
	t.Helper()
	var ends [2]*talker
	for i := range ends {
		x, err := newTalker(device, local, param)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, x.close()) })
		ends[i] = x
	}
	return ends[0], ends[1]
}

// testBroughtUp looks at what the device says about a QP that was brought up.
func testBroughtUp(t *testing.T, device string, local netip.Addr) {
	t.Helper()
	param := DefaultBringUpParam()
	param.AckTimeout, param.RetryCount, param.MinRNRTimer, param.RNRRetryCount, param.TOS = 14, 5, 10, 3, 0x20
	a, b := talkers(t, device, local, &param)
	requirePort(t, a.at, local)
	small := b.local
	small.MTU, small.RdAtomic = verbs.MTU512, 2
	require.NoError(t, BringUp(a.qp, &a.at, a.local, small, &param))
	require.NoError(t, BringUp(b.qp, &b.at, small, a.local, &param))
	got, _, err := a.qp.Query()
	require.NoError(t, err)
	require.Equal(t, verbs.QPRTS, got.State)
	require.Equal(t, verbs.MTU512, got.PathMTU)
	require.Equal(t, a.at.Index, got.AH.SGIDIndex)
	require.Equal(t, a.at.Port, got.AH.PortNum)
	require.Equal(t, b.at.GID, got.AH.DGID)
	require.Equal(t, b.qp.QPN(), got.DestQPN)
	require.Equal(t, []uint32{a.local.PSN, b.local.PSN}, []uint32{got.SQPSN, got.RQPSN})
	require.EqualValues(t, []uint8{14, 5, 10, 3, 2}, []uint8{got.Timeout, got.RetryCnt, got.MinRNRTimer, got.RNRRetry, got.MaxRdAtomic})
	require.EqualValues(t, 0x20, got.AH.TrafficClass)
	require.Equal(t, verbs.AccessRemoteWrite, got.AccessFlags&(verbs.AccessRemoteWrite|verbs.AccessRemoteRead|verbs.AccessRemoteAtomic))
	require.NoError(t, b.send(msgMR, span{addr: 1, rkey: 2, size: 3}))
	kind, s, _, err := a.next()
	require.NoError(t, err)
	require.EqualValues(t, msgMR, kind)
	require.Equal(t, span{1, 2, 3}, s)
}

// testWrongGID takes another entry of the GID table than the address has: refused
// where it can be seen, and else unheard.
func testWrongGID(t *testing.T, device string, local netip.Addr) {
	t.Helper()
	a, b := talkers(t, device, local, nil)
	for _, index := range []int{-1, 1 << 20} {
		wrong := a.at
		wrong.Index = index
		err := BringUp(a.qp, &wrong, a.local, b.local, nil)
		require.ErrorIs(t, err, verbs.ErrInvalid)
		require.Equal(t, verbs.QPInit, a.qp.State())
	}
	other := -1
	_, gids, err := verbs.PortGIDs(a.ctx, a.at.Port)
	require.NoError(t, err)
	for _, g := range gids {
		if g.GID != a.at.GID || g.Type != a.at.Type {
			other = g.Index
		}
	}
	if other >= 0 {
		wrong := a.at
		wrong.Index = other
		var be *BringUpError
		require.ErrorAs(t, BringUp(a.qp, &wrong, a.local, b.local, nil), &be)
		require.ErrorIs(t, be, verbs.ErrInvalid)
		require.ErrorContains(t, be, "GID index")
		require.Equal(t, verbs.QPInit, a.qp.State())
	}
}

// testUnheard lies to one end about the other: what they send comes to nothing, in
// bounded time, and the error says so.
func testUnheard(t *testing.T, device string, local netip.Addr, lie func(remote *QPAddr)) {
	t.Helper()
	param := DefaultBringUpParam()
	param.AckTimeout, param.RetryCount = 12, 2 // 17 ms, three times
	a, b := talkers(t, device, local, &param)
	remote := b.local
	lie(&remote)
	require.NoError(t, BringUp(b.qp, &b.at, b.local, a.local, &param))
	if err := BringUp(a.qp, &a.at, a.local, remote, &param); err != nil {
		var be *BringUpError
		require.ErrorAs(t, err, &be)
		t.Logf("the device notices: %v", err)
		return
	}
	require.ErrorIs(t, b.send(msgDone, span{}), verbs.WCRetryExcErr)
	require.Eventually(t, func() bool { return b.qp.State() == verbs.QPErr }, talkPatience, time.Millisecond)
}
