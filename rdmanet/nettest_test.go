package rdmanet

import (
	"net"
	"testing"

	"golang.org/x/net/nettest"
)

func TestNetConn(t *testing.T) {
	mostlyWaits(t)
	eachFlavour(t, func(t *testing.T, fl flavour) {
		nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
			client, server, err := dialPair(&fl.dialer, &fl.listen)
			if err != nil {
				return nil, nil, nil, err
			}
			return client, server, func() { client.Close(); server.Close() }, nil
		})
	})
}
