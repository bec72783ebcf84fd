package rdmanet

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLinkPatience: a dial without a deadline that waits for a place ends some time, as TCP's does.
func TestLinkPatience(t *testing.T) {
	was := linkPatience
	require.Equal(t, dialPatience, was)
	defer func() { linkPatience = was }()
	lc := ListenConfig{Backlog: 1, Logger: quiet}
	l, err := lc.listen(context.Background(), "rdma", testAddr())
	require.NoError(t, err)
	defer l.Close()
	first, err := Dial("rdma", l.Addr().String()) // which has the only place
	require.NoError(t, err)
	defer first.Close()
	linkPatience = 50 * time.Millisecond
	within(t, patience, "a dial that waits", func() {
		_, err = Dial("rdma", l.Addr().String())
	})
	requireOpError(t, err, "dial", []string{"rdma"}, syscall.ETIMEDOUT)
	require.ErrorContains(t, err, errLinkPatience.Error())
}
