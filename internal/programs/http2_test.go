package programs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// http2Pair starts an HTTP/2 server on rdmanet and returns a client and the base of
// its URLs: with TLS, or in clear text, both from the first byte on.
func http2Pair(t *testing.T, secure bool, handler http.Handler) (*wire, *http.Client, *http.Server, string) {
	t.Helper()
	w := newWire(t)
	s := &http.Server{Handler: handler, Protocols: new(http.Protocols)}
	transport := &http.Transport{
		Protocols:   new(http.Protocols),
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return w.Dial(ctx) },
	}
	served := make(chan error, 1)
	base := "http://" + serverName
	if secure {
		base = "https://" + serverName
		s.TLSConfig, transport.TLSClientConfig = tlsConfigs(t)
		s.Protocols.SetHTTP2(true)
		transport.Protocols.SetHTTP2(true)
		go func() { served <- s.ServeTLS(w, "", "") }()
	} else {
		s.Protocols.SetUnencryptedHTTP2(true)
		transport.Protocols.SetUnencryptedHTTP2(true)
		go func() { served <- s.Serve(w) }()
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = s.Close()
		assert.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	return w, &http.Client{Transport: transport, Timeout: patience}, s, base
}

func onHTTP2(t *testing.T, test func(t *testing.T, secure bool)) {
	t.Run("h2", func(t *testing.T) { test(t, true) })
	t.Run("h2c", func(t *testing.T) { test(t, false) })
}

// sumHandler answers with what was sent, and with its checksum in a trailer.
func sumHandler(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 2 {
		http.Error(w, "not HTTP/2 but "+r.Proto, http.StatusHTTPVersionNotSupported)
		return
	}
	w.Header().Set("Trailer", "Sum")
	sum := sha256.New()
	_, _ = io.Copy(io.MultiWriter(w, sum), r.Body)
	w.Header().Set("Sum", fmt.Sprintf("%x", sum.Sum(nil)))
}

func TestHTTP2ManyRequestsAtOnce(t *testing.T) {
	onHTTP2(t, func(t *testing.T, secure bool) {
		w, client, _, base := http2Pair(t, secure, http.HandlerFunc(sumHandler))
		post := func(i int) error {
			data := random(i*i*100, byte(i))
			resp, err := client.Post(base, "application/octet-stream", bytes.NewReader(data))
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			switch {
			case err != nil:
				return err
			case resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2:
				return fmt.Errorf("%s by %s: %s", resp.Status, resp.Proto, got)
			case !bytes.Equal(data, got) || resp.Trailer.Get("Sum") != fmt.Sprintf("%x", sha256.Sum256(data)):
				return errors.New("not what was sent")
			}
			return nil
		}
		require.NoError(t, post(0))
		require.NoError(t, together(100, post))
		assert.Equal(t, 1, w.count(), "one connection carries them all")
	})
}

// TestHTTP2BothWaysAtOnce talks to and fro within one request.
func TestHTTP2BothWaysAtOnce(t *testing.T) {
	onHTTP2(t, func(t *testing.T, secure bool) {
		_, client, _, base := http2Pair(t, secure, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			buf := make([]byte, 64<<10)
			for {
				n, err := r.Body.Read(buf)
				if n > 0 {
					_, _ = w.Write(buf[:n])
					_ = http.NewResponseController(w).Flush()
				}
				if err != nil {
					return
				}
			}
		}))
		body, say := io.Pipe()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base, body)
		require.NoError(t, err)
		resp, err := client.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		for i := range 100 {
			line := random(i*100+1, byte(i))
			_, err := say.Write(line)
			require.NoError(t, err)
			got := make([]byte, len(line))
			_, err = io.ReadFull(resp.Body, got)
			require.NoError(t, err)
			require.Equal(t, line, got)
		}
		require.NoError(t, say.Close())
		rest, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Empty(t, rest)
	})
}

// TestHTTP2Shutdown ends a server with a request under way: it is finished, and the
// next one finds nobody.
func TestHTTP2Shutdown(t *testing.T) {
	onHTTP2(t, func(t *testing.T, secure bool) {
		entered, leave := make(chan struct{}), make(chan struct{})
		_, client, s, base := http2Pair(t, secure, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(entered)
			<-leave
			_, _ = io.WriteString(w, "done")
		}))
		down := make(chan error, 1)
		go func() {
			<-entered
			s.RegisterOnShutdown(func() { close(leave) })
			down <- s.Shutdown(t.Context())
		}()
		resp, err := client.Get(base)
		require.NoError(t, err)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, "done", string(got))
		require.NoError(t, <-down)
		_, err = client.Get(base)
		assert.ErrorContains(t, err, "connection refused")
	})
}

// TestHTTP2Cancel gives up requests: the connection serves on.
func TestHTTP2Cancel(t *testing.T) {
	onHTTP2(t, func(t *testing.T, secure bool) {
		_, client, _, base := http2Pair(t, secure, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/wait" {
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}
		}))
		require.NoError(t, together(20, func(int) error {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/wait", nil)
			if err != nil {
				return err
			}
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			cancel()
			if _, err = io.ReadAll(resp.Body); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("not cancelled but %w", err)
			}
			return nil
		}))
		resp, err := client.Get(base)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, http.StatusOK, resp.StatusCode)
	})
}
