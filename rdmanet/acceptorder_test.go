package rdmanet

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAcceptInOrder has clients that dial one after the other come to Accept so.
func TestAcceptInOrder(t *testing.T) {
	eachDevice(t, func(t *testing.T, fl flavour) {
		l := fl.newListener(t)
		for range 20 {
			var clients []*Conn
			for range 8 {
				c, err := fl.dialer.dial(context.Background(), "rdma", l.Addr().String())
				require.NoError(t, err)
				defer c.Close()
				clients = append(clients, c)
			}
			for _, c := range clients {
				s, err := l.AcceptConn()
				require.NoError(t, err)
				defer s.Close()
				require.Equal(t, c.LocalAddr().String(), s.RemoteAddr().String())
			}
		}
	})
}
