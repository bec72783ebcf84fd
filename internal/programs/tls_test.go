package programs

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"
)

// TestTLSIsANetConn runs nettest on TLS over rdmanet, but for PastTimeout,
// FutureTimeout and ConcurrentMethods: these go on after a Write that timed out, and
// crypto/tls says of itself that nothing can be written then.
func TestTLSIsANetConn(t *testing.T) {
	runCases(t, "BasicIO|PingPong|RacyRead|RacyWrite|ReadTimeout|WriteTimeout|PresentTimeout|CloseTimeout", func(t *testing.T) {
		w := newWire(t)
		forServer, forClient := tlsConfigs(t)
		nettest.TestConn(t, func() (client, server net.Conn, stop func(), err error) {
			c, s, err := w.pair()
			if err != nil {
				return nil, nil, nil, err
			}
			tc, ts := tlsEnd{tls.Client(c, forClient)}, tlsEnd{tls.Server(s, forServer)}
			shaken := make(chan error)
			go func() { shaken <- ts.Handshake() }()
			if err := errors.Join(tc.Handshake(), <-shaken); err != nil {
				return nil, nil, nil, err
			}
			return tc, ts, func() { _ = tc.Close(); _ = ts.Close() }, nil
		})
	})
}

// A tlsEnd can be closed when the peer has been: TLS then has a goodbye to say that
// TCP loses without a word, and of which rdmanet says that nobody is there to read it.
type tlsEnd struct{ *tls.Conn }

func (c tlsEnd) Close() error {
	err := c.Conn.Close()
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// TestTLSVersions exchanges data both ways at once and ends the directions one after
// the other, with every version and kind of cipher that matters.
func TestTLSVersions(t *testing.T) {
	forServer, forClient := tlsConfigs(t)
	for _, c := range []struct {
		name    string
		version uint16
		cipher  uint16
	}{
		{"1.2 AES-GCM", tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256},
		{"1.2 ChaCha20", tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256},
		{"1.3", tls.VersionTLS13, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWire(t)
			config := forServer.Clone()
			config.MinVersion, config.MaxVersion = c.version, c.version
			if c.cipher != 0 {
				config.CipherSuites = []uint16{c.cipher}
			}
			there, back := random(5<<20+1, 1), random(3<<20+1, 2)
			raw, server, err := w.pair()
			require.NoError(t, err)
			served := make(chan error)
			go func() {
				ts := tls.Server(server, config)
				sent := make(chan error)
				go func() { sent <- send(ts, back) }()
				got, err := io.ReadAll(ts)
				if err == nil && !bytes.Equal(there, got) {
					err = errors.New("not what the client sent")
				}
				served <- errors.Join(err, <-sent, ts.Close())
			}()
			tc := tls.Client(raw, forClient)
			sent := make(chan error)
			go func() { sent <- send(tc, there) }()
			got, err := io.ReadAll(tc)
			require.NoError(t, err)
			require.NoError(t, <-sent)
			require.True(t, bytes.Equal(back, got))
			require.NoError(t, <-served)
			assert.Equal(t, c.version, tc.ConnectionState().Version)
			require.NoError(t, tc.Close())
		})
	}
}

func send(conn *tls.Conn, b []byte) error {
	_, err := conn.Write(b)
	return errors.Join(err, conn.CloseWrite())
}

// TestTLSCutOff ends the connection in the middle of a record, which must not look
// like an end.
func TestTLSCutOff(t *testing.T) {
	forServer, forClient := tlsConfigs(t)
	w := newWire(t)
	raw, server, err := w.pair()
	require.NoError(t, err)
	go func() {
		ts := tls.Server(server, forServer)
		_, _ = io.WriteString(ts, "half of a")
		_, _ = io.ReadFull(ts, make([]byte, 1))
		_, _ = server.Write([]byte{23, 3, 3, 0, 100, 1, 2, 3}) // 3 of the record's 100 bytes
		_ = server.Close()
	}()
	tc := tls.Client(raw, forClient)
	defer tc.Close()
	_, err = io.WriteString(tc, "?")
	require.NoError(t, err)
	got, err := io.ReadAll(tc)
	assert.Equal(t, "half of a", string(got))
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
}
