package rdmanet

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// silentVar is an address on the device's network that takes packets and answers none.
const silentVar = "RDMANET_TEST_SILENT"

// A dial to a host that says nothing keeps its time, and holds nobody else up: on soft-iWARP
// rdma_connect and ibv_destroy_qp wait for TCP meanwhile.
func TestDialSilentHost(t *testing.T) {
	silent := os.Getenv(silentVar)
	if silent == "" {
		t.Skip("no host that says nothing: " + silentVar + " is the address of one")
	}
	const (
		crowd  = 40 // more than calls that may wait for TCP at a time
		waited = 10 * time.Second
	)
	l, err := Listen("rdma", testAddr())
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, c); _ = c.Close() }()
		}
	}()

	in := MemoryInUse()
	type end struct {
		err  error
		took time.Duration
	}
	ends := make(chan end, crowd)
	for range crowd {
		go func() {
			began := time.Now()
			_, err := (&Dialer{Timeout: time.Second, Logger: quiet}).Dial("rdma", silent)
			ends <- end{err, time.Since(began)}
		}()
	}
	time.Sleep(500 * time.Millisecond) // so that they have begun
	c, err := (&Dialer{Timeout: waited, Logger: quiet}).Dial("rdma", l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, c.Close())
	var longest time.Duration
	for range crowd {
		e := <-ends
		var timeout net.Error
		require.ErrorAs(t, e.err, &timeout)
		require.True(t, timeout.Timeout(), "%v", e.err)
		longest = max(longest, e.took)
	}
	t.Logf("a timeout of a second was kept but for %v", longest-time.Second)
	require.Less(t, longest, waited)
	require.Eventually(t, func() bool { return MemoryInUse() <= in }, 2*time.Minute, 100*time.Millisecond, "given back")
}
