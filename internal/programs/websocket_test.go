package programs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// maxMessage is the longest WebSocket message of the tests.
const maxMessage = 16 << 20

// webSockets starts a server whose every WebSocket is served by serve, and returns
// how to connect to it.
func webSockets(t *testing.T, mode websocket.CompressionMode, serve func(context.Context, *websocket.Conn) error) (dial func() (*websocket.Conn, error)) {
	t.Helper()
	w := newWire(t)
	s := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(rw, r, &websocket.AcceptOptions{CompressionMode: mode})
		if !assert.NoError(t, err) {
			return
		}
		defer conn.CloseNow()
		conn.SetReadLimit(maxMessage)
		assert.NoError(t, serve(r.Context(), conn))
	})}
	served := make(chan error, 1)
	go func() { served <- s.Serve(w) }()
	t.Cleanup(func() {
		assert.NoError(t, s.Close())
		assert.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return w.Dial(ctx) },
	}}
	return func() (*websocket.Conn, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		conn, resp, err := websocket.Dial(ctx, "ws://"+serverName, &websocket.DialOptions{HTTPClient: client, CompressionMode: mode})
		if err != nil {
			return nil, err
		}
		conn.SetReadLimit(maxMessage)
		if compressed := resp.Header.Get("Sec-WebSocket-Extensions") != ""; compressed != (mode != websocket.CompressionDisabled) {
			return nil, fmt.Errorf("compressed: %v", compressed)
		}
		return conn, nil
	}
}

// echoMessages returns every message until the client closes.
func echoMessages(ctx context.Context, conn *websocket.Conn) error {
	for {
		kind, message, err := conn.Read(ctx)
		if websocket.CloseStatus(err) == websocket.StatusNormalClosure {
			return nil
		}
		if err != nil {
			return err
		}
		if err := conn.Write(ctx, kind, message); err != nil {
			return err
		}
	}
}

func TestWebSocket(t *testing.T) {
	for name, mode := range map[string]websocket.CompressionMode{
		"plain": websocket.CompressionDisabled, "compressed": websocket.CompressionContextTakeover,
	} {
		t.Run(name, func(t *testing.T) {
			dial := webSockets(t, mode, echoMessages)
			require.NoError(t, together(20, func(i int) error {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				conn, err := dial()
				if err != nil {
					return err
				}
				defer conn.CloseNow()
				sizes := []int{0, 1, 125, 126, 65535, 65536, 1 << 20}
				if i == 0 {
					sizes = append(sizes, maxMessage)
				}
				for _, size := range sizes {
					kind, message := websocket.MessageBinary, random(size, byte(i))
					if i%2 == 1 {
						kind, message = websocket.MessageText, []byte(strings.Repeat("grüße ", size/7))
					}
					sent := make(chan error, 1)
					go func() { sent <- conn.Write(ctx, kind, message) }()
					gotKind, got, err := conn.Read(ctx)
					if err := errors.Join(err, <-sent); err != nil {
						return err
					}
					if kind != gotKind || !bytes.Equal(message, got) {
						return fmt.Errorf("the message of %d bytes came back changed", size)
					}
				}
				reading := conn.CloseRead(ctx) // pongs are found while reading
				if err := conn.Ping(reading); err != nil {
					return err
				}
				return conn.Close(websocket.StatusNormalClosure, "thanks")
			}))
		})
	}
}

// TestWebSocketCloseHandshake has the server close with a reason of its own, and the
// connection end below a client that is not told why.
func TestWebSocketCloseHandshake(t *testing.T) {
	dial := webSockets(t, websocket.CompressionDisabled, func(ctx context.Context, conn *websocket.Conn) error {
		_, message, err := conn.Read(ctx)
		if err != nil {
			return err
		}
		if string(message) == "go" {
			return conn.CloseNow()
		}
		return conn.Close(4711, "enough")
	})
	for message, check := range map[string]func(error){
		"close": func(err error) {
			var why websocket.CloseError
			require.ErrorAs(t, err, &why)
			assert.Equal(t, websocket.CloseError{Code: 4711, Reason: "enough"}, why)
		},
		"go": func(err error) {
			require.Error(t, err)
			assert.EqualValues(t, -1, websocket.CloseStatus(err), err)
		},
	} {
		conn, err := dial()
		require.NoError(t, err)
		require.NoError(t, conn.Write(t.Context(), websocket.MessageText, []byte(message)))
		_, _, err = conn.Read(t.Context())
		check(err)
		_ = conn.CloseNow()
	}
}
