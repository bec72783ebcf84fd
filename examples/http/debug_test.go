package main

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/cli/endpoint"
)

func TestDebug(t *testing.T) {
	config := endpoint.Config{Network: "rdma"}
	here, _, err := config.Local()
	require.NoError(t, err)
	l, err := config.Listen(t.Context(), here)
	require.NoError(t, err)
	defer l.Close()

	var address string
	stop, err := serveDebug(t.Context(), "127.0.0.1:0", func(at string) { address = at })
	require.NoError(t, err)
	defer stop()
	resp, err := http.Get(address)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Contains(t, string(body), "LISTEN  "+l.Addr().String())

	_, err = serveDebug(t.Context(), "127.0.0.1:nonsense", nil)
	require.Error(t, err)
}
