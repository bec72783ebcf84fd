//go:build linux && (amd64 || arm64)

package rdmanet

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
)

// TestSoftVersionFallsBack has a server whose software device speaks another version, and which is
// served by TCP for that.
func TestSoftVersionFallsBack(t *testing.T) {
	onSoftware(t)
	tcp, err := net.Listen("tcp", loopbackAddr)
	require.NoError(t, err)
	defer tcp.Close()
	at := tcp.Addr().(*net.TCPAddr).AddrPort()
	fd, err := control.OpenSocket()
	require.NoError(t, err)
	require.NoError(t, control.BindName(fd, control.BoundName("soft0", control.BoundHost(at.Addr(), false), at.Port())))
	require.NoError(t, syscall.Listen(fd, 8))
	l, err := control.NewSocket(fd)
	require.NoError(t, err)
	defer l.Close()
	answered := make(chan error, 1)
	go func() { answered <- answerAnotherVersion(l) }()

	var told *FallbackError
	d := Dialer{Logger: quiet, OnFallback: func(e *FallbackError) { told = e }, RetryRDMA: -1}
	c, err := d.Dial("tcp", at.String())
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, <-answered)
	require.ErrorIs(t, told, cm.ErrVersion)
	require.Equal(t, FallbackVersion, told.Reason)
	require.ErrorIs(t, told, syscall.ECONNREFUSED)
	require.ErrorContains(t, told, "the peer speaks version 5 of the software device's protocol, this library speaks 4: update the older of the two")
}

// answerAnotherVersion answers one dialer as the listener of the next version would.
func answerAnotherVersion(l *control.Socket) error {
	fd, _, err := l.Accept()
	if err != nil {
		return err
	}
	s, err := control.NewSocket(fd)
	if err != nil {
		return err
	}
	defer s.Close()
	_, fds, err := s.Recv(make([]byte, control.MaxMessage))
	if err != nil {
		return err
	}
	control.CloseFDs(fds)
	no := control.AppendREJ(nil, control.RejectUnsupported, nil)
	no[1]++
	return s.Send(no, nil)
}
