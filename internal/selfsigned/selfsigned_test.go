package selfsigned

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// handshake returns what the client says of a server.
func handshake(server, client *tls.Config) error {
	a, b := net.Pipe()
	defer a.Close()
	go func() {
		_ = tls.Server(b, server).Handshake()
		_ = b.Close()
	}()
	return tls.Client(a, client).Handshake()
}

func TestConfigs(t *testing.T) {
	server, client, err := Configs("one.test")
	require.NoError(t, err)
	require.NoError(t, handshake(server, client))

	again, err := Client("one.test", server.Certificates[0].Certificate[0])
	require.NoError(t, err)
	require.NoError(t, handshake(server, again))

	other, _, err := Configs("one.test")
	require.NoError(t, err)
	require.ErrorAs(t, handshake(other, client), new(x509.UnknownAuthorityError), "another certificate of that name")

	client.ServerName = "two.test"
	require.ErrorAs(t, handshake(server, client), new(x509.HostnameError))
}

func TestClientOfNoCertificate(t *testing.T) {
	_, err := Client("one.test", []byte("no certificate"))
	require.Error(t, err)
}
