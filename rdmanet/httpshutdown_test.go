package rdmanet_test

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// A site is an http.Server on one of our networks, with a client.
type site struct {
	server *http.Server
	served chan error
	addr   net.Addr
	client *http.Client

	entered chan struct{} // a request of /slow has come
	leave   chan struct{} // and may be answered
}

// sites are the networks, and the kinds of connections on them.
func eachSite(t *testing.T, f func(t *testing.T, s *site)) {
	quiet := slog.New(slog.DiscardHandler)
	for _, kind := range []struct {
		name, network, device string
	}{
		{"rdma", "rdma", ""}, {"tcp by RDMA", "tcp", ""}, {"tcp by TCP", "tcp", "nosuch0"},
	} {
		t.Run(kind.name, func(t *testing.T) {
			lc := rdmanet.ListenConfig{Device: kind.device, Logger: quiet}
			address := cmp.Or(os.Getenv("RDMANET_TEST_ADDR"), "127.0.0.1:0") // the first on a real device
			l, err := lc.Listen(context.Background(), kind.network, address)
			require.NoError(t, err)
			s := &site{served: make(chan error, 1), addr: l.Addr(), entered: make(chan struct{}), leave: make(chan struct{})}
			mux := http.NewServeMux()
			mux.HandleFunc("/fast", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fast") })
			mux.HandleFunc("/slow", func(w http.ResponseWriter, _ *http.Request) {
				s.entered <- struct{}{}
				<-s.leave
				_, _ = io.WriteString(w, "slow")
			})
			s.server = &http.Server{Handler: mux}
			go func() { s.served <- s.server.Serve(l) }()
			d := rdmanet.Dialer{Device: kind.device, Logger: quiet, RetryRDMA: -1}
			transport := &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
				return d.DialContext(ctx, kind.network, address)
			}}
			s.client = &http.Client{Transport: transport, Timeout: time.Minute}
			t.Cleanup(func() {
				_ = s.server.Close()
				transport.CloseIdleConnections()
			})
			f(t, s)
		})
	}
}

func (s *site) get(path string) (string, error) {
	resp, err := s.client.Get("http://" + s.addr.String() + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// TestHTTPShutdown has a server stop while one request is under way and another
// connection is idle.
func TestHTTPShutdown(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		slow := make(chan error, 1)
		go func() {
			body, err := s.get("/slow")
			if err == nil && body != "slow" {
				err = io.ErrUnexpectedEOF
			}
			slow <- err
		}()
		<-s.entered
		body, err := s.get("/fast") // on a connection of its own, which is idle afterwards
		require.NoError(t, err)
		require.Equal(t, "fast", body)

		stopped := make(chan error, 1)
		go func() { stopped <- s.server.Shutdown(context.Background()) }()
		require.Equal(t, http.ErrServerClosed, <-s.served)
		// The idle connection is closed, and there is no new one. Serve returns before
		// Shutdown has closed it, so one request may still come through.
		require.Eventually(t, func() bool { _, err := s.get("/fast"); return err != nil }, 5*time.Second, time.Millisecond)
		select {
		case err := <-stopped:
			t.Fatalf("Shutdown did not wait for the request under way: %v", err)
		default:
		}
		close(s.leave)
		require.NoError(t, <-slow)
		require.NoError(t, <-stopped)
	})
}

// TestHTTPShutdownGivesUp has a request that takes too long, and then Close, which
// cuts it off.
func TestHTTPShutdownGivesUp(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		slow := make(chan error, 1)
		go func() {
			_, err := s.get("/slow")
			slow <- err
		}()
		<-s.entered
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, s.server.Shutdown(ctx), context.DeadlineExceeded)
		require.Equal(t, http.ErrServerClosed, <-s.served)
		require.NoError(t, s.server.Close())
		require.Error(t, <-slow)
		close(s.leave)
	})
}
