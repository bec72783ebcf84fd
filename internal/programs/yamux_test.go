package programs

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/hashicorp/yamux"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"
)

// sessions returns both ends of a yamux session over a connection.
func sessions(w *wire) (client, server *yamux.Session, err error) {
	config := yamux.DefaultConfig()
	config.LogOutput = io.Discard
	c, s, err := w.pair()
	if err != nil {
		return nil, nil, err
	}
	client, err = yamux.Client(c, config)
	if err != nil {
		return nil, nil, err
	}
	server, err = yamux.Server(s, config)
	return client, server, err
}

func TestYamuxManyStreams(t *testing.T) {
	w := newWire(t)
	client, server, err := sessions(w)
	require.NoError(t, err)
	echoed := make(chan struct{})
	go func() {
		defer close(echoed)
		for {
			stream, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(stream, stream)
				_ = stream.Close()
			}()
		}
	}()
	require.NoError(t, together(200, func(i int) error {
		stream, err := client.Open()
		if err != nil {
			return err
		}
		data := random(i*2000+1, byte(i))
		go func() {
			_, _ = stream.Write(data)
			_ = stream.Close() // of yamux: no more will be written
		}()
		got, err := io.ReadAll(stream)
		if err == nil && !bytes.Equal(data, got) {
			err = errors.New("not what was sent")
		}
		return err
	}))
	_, err = client.Ping()
	require.NoError(t, err)
	require.NoError(t, client.Close())
	<-echoed
	require.NoError(t, server.Close())
	assert.Equal(t, 1, w.count())
}

// TestYamuxStreamIsANetConn runs nettest on streams over rdmanet, but for WriteTimeout,
// PastTimeout and CloseTimeout: a Write of yamux looks at its deadline only when it has
// to wait, and Close ends the own direction only.
func TestYamuxStreamIsANetConn(t *testing.T) {
	runCases(t, "BasicIO|PingPong|RacyRead|RacyWrite|ReadTimeout|PresentTimeout|FutureTimeout|ConcurrentMethods", func(t *testing.T) {
		w := newWire(t)
		nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
			client, server, err := sessions(w)
			if err != nil {
				return nil, nil, nil, err
			}
			if c1, err = client.Open(); err != nil {
				return nil, nil, nil, err
			}
			if c2, err = server.Accept(); err != nil {
				return nil, nil, nil, err
			}
			return c1, c2, func() { _ = client.Close(); _ = server.Close() }, nil
		})
	})
}
