package selfsigned

import (
	"crypto/tls"
	"crypto/x509"
	"testing"

	"github.com/stretchr/testify/require"
)

// handshake returns what the client says of a server.
func handshake(t *testing.T, server, client *tls.Config) error {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	require.NoError(t, err)
	defer l.Close()
	go func() {
		if conn, err := l.Accept(); err == nil {
			_ = conn.(*tls.Conn).Handshake()
			_ = conn.Close()
		}
	}()
	conn, err := tls.Dial("tcp", l.Addr().String(), client)
	if err == nil {
		_ = conn.Close()
	}
	return err
}

func TestConfigs(t *testing.T) {
	server, client, err := Configs("one.test")
	require.NoError(t, err)
	require.NoError(t, handshake(t, server, client))

	again, err := Client("one.test", server.Certificates[0].Certificate[0])
	require.NoError(t, err)
	require.NoError(t, handshake(t, server, again))

	other, _, err := Configs("one.test")
	require.NoError(t, err)
	require.ErrorAs(t, handshake(t, other, client), new(x509.UnknownAuthorityError), "another certificate of that name")

	client.ServerName = "two.test"
	require.ErrorAs(t, handshake(t, server, client), new(x509.HostnameError))
}

func TestClientOfNoCertificate(t *testing.T) {
	_, err := Client("one.test", []byte("no certificate"))
	require.Error(t, err)
}
