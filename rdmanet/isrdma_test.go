package rdmanet

import (
	"crypto/tls"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// wrappedConn has a connection inside, which may be itself.
type wrappedConn struct {
	net.Conn
	inner net.Conn
}

func (w *wrappedConn) NetConn() net.Conn { return w.inner }

// hiddenConn does not show what is inside.
type hiddenConn struct{ net.Conn }

func TestIsRDMA(t *testing.T) {
	client, server := pair(t)
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	self := &wrappedConn{}
	self.inner = self
	one, other := &wrappedConn{}, &wrappedConn{}
	one.inner, other.inner = other, one
	for name, tt := range map[string]struct {
		conn net.Conn
		want bool
	}{
		"dialled":           {client, true},
		"accepted":          {server, true},
		"TLS":               {tls.Client(client, &tls.Config{}), true},
		"TLS in a wrapper":  {&wrappedConn{inner: tls.Server(server, &tls.Config{})}, true},
		"nil":               {nil, false},
		"nil in a wrapper":  {&wrappedConn{}, false},
		"pipe":              {here, false},
		"TLS of a pipe":     {tls.Client(here, &tls.Config{}), false},
		"hidden":            {hiddenConn{client}, false},
		"wraps itself":      {self, false},
		"wrap each other":   {one, false},
		"no connection yet": {(*Conn)(nil), false},
	} {
		require.Equal(t, tt.want, IsRDMA(tt.conn), name)
	}
}
