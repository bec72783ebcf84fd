//go:build linux

package rdmanet

import (
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
)

const descriptorsRole = "descriptors"

func init() {
	roles[descriptorsRole] = func() int {
		for _, target := range leaktest.OpenFiles() {
			fmt.Println(target)
		}
		return 0
	}
}

// TestExecUnderLoad starts processes while connections come and go and bytes move:
// none of them inherits a descriptor.
func TestExecUnderLoad(t *testing.T) {
	fl := flavour{}
	client, server := fl.pair(t)
	go func() { _, _ = io.Copy(server, server) }()
	stop, stopped := make(chan struct{}), make(chan struct{}, 2)
	go func() {
		defer func() { stopped <- struct{}{} }()
		buf := make([]byte, 10_000)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := client.Write(buf); !assert.NoError(t, err) {
				return
			}
			if _, err := io.ReadFull(client, buf); !assert.NoError(t, err) {
				return
			}
		}
	}()
	go func() {
		defer func() { stopped <- struct{}{} }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			c, s, err := dialPair(&fl.dialer, &fl.listen)
			if !assert.NoError(t, err) {
				return
			}
			_, _ = c.Close(), s.Close()
		}
	}()
	for range 20 {
		out, err := roleCommand(descriptorsRole).CombinedOutput()
		require.NoError(t, err)
		for _, kind := range []string{"memfd", "socket", "eventfd"} {
			require.NotContains(t, string(out), kind, "a descriptor was inherited")
		}
	}
	close(stop)
	<-stopped
	<-stopped
}
