package rdmanet

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTCPConnectionsToAnIWARPPort opens and closes TCP connections to the port of an iWARP
// listener, which is one of TCP's. A dial gets through all the same.
func TestTCPConnectionsToAnIWARPPort(t *testing.T) {
	if !onIWARP(t) {
		t.Skip("no iWARP device under test, whose ports are TCP's")
	}
	l, err := Listen("rdma4", testAddr())
	require.NoError(t, err)
	defer l.Close()
	for range 100 {
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
	within(t, patience, "a dial", func() {
		c, err := Dial("rdma4", l.Addr().String())
		require.NoError(t, err)
		defer c.Close()
		s, err := l.Accept()
		require.NoError(t, err)
		defer s.Close()
		_, err = c.Write([]byte("!"))
		require.NoError(t, err)
		_, err = s.Read(make([]byte, 1))
		require.NoError(t, err)
	})
}
