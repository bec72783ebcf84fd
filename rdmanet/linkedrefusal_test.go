//go:build linux

package rdmanet

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
)

func init() { roles["dial-once"] = dialOnceRole }

// dialOnceRole says how a dial ends.
func dialOnceRole() int {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began := time.Now()
	c, err := new(Dialer).dial(ctx, "rdma", os.Getenv("RDMANET_TEST_DIAL"))
	if err == nil {
		_ = c.Close()
	}
	fmt.Printf("%v: %v\n", isVersion(err), err)
	if time.Since(began) > patience/2 {
		fmt.Println("it took too long")
	}
	return 0
}

func isVersion(err error) bool { return reasonOf(err) == FallbackVersion }

// TestRefusesTheOtherWay: a process whose connections go by links and one where each has a QP
// of its own refuse each other at once, and say why.
func TestRefusesTheOtherWay(t *testing.T) {
	if onIWARP(t) {
		t.Skip("links refuse a network's iWARP before they ask anybody")
	}
	l, err := Listen("rdma", testAddr())
	require.NoError(t, err)
	defer l.Close()
	dial := func(links string) string {
		self := roleCommand("dial-once")
		self.Env = append(self.Env, "RDMANET_TEST_DIAL="+l.Addr().String(), "RDMANET_LINKS="+links)
		out, err := self.Output()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	same, other := "0", "1"
	if overLinks {
		same, other = other, same
	}
	require.Equal(t, "false: <nil>\n", dial(same))
	got := dial(other)
	require.Contains(t, got, "true: dial rdma "+l.Addr().String(), "it is cm.ErrVersion")
	require.Contains(t, got, cm.RefusedVersion.String())
	require.Contains(t, got, "share QPs")
	require.NotContains(t, got, "too long")
}
