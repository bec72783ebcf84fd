package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/cli/commandtest"
	"github.com/rdmanet/go-rdmanet/internal/cli/endpoint"
)

func TestMain(m *testing.M) { os.Exit(commandtest.Main(m.Run, main)) }

func TestHello(t *testing.T) {
	here, _, err := endpoint.Config{Network: network}.Local()
	require.NoError(t, err)
	server := commandtest.Start(t, "-listen", here)
	for range 2 {
		out, errs, status := commandtest.Finish(t, commandtest.Program(t, "-dial", server.Address))
		assert.Zero(t, status, errs)
		assert.Equal(t, server.Address+" says hello\n", out)
	}
}

func TestFailures(t *testing.T) {
	here, _, err := endpoint.Config{Network: network}.Local()
	require.NoError(t, err)
	nobody := strings.Replace(here, ":0", ":1", 1)
	_, errs, status := commandtest.Finish(t, commandtest.Program(t, "-dial", nobody))
	assert.Equal(t, 1, status)
	assert.Contains(t, errs, "refused")
	_, errs, status = commandtest.Finish(t, commandtest.Program(t, "-listen", "127.0.0.1:nonsense"))
	assert.Equal(t, 1, status)
	assert.Contains(t, errs, "nonsense")
	_, errs, status = commandtest.Finish(t, commandtest.Program(t))
	assert.Equal(t, 2, status)
	assert.Contains(t, errs, "-dial address")
	_, errs, status = commandtest.Finish(t, commandtest.Program(t, "-help"))
	assert.Zero(t, status)
	assert.Regexp(t, "^Usage of hello:\n  -dial address\n", errs)
}

// What is copied must not need what cannot be: packages that are internal here.
func TestHelloCanBeCopied(t *testing.T) {
	code, err := os.ReadFile("main.go")
	require.NoError(t, err)
	assert.Contains(t, string(code), `"github.com/rdmanet/go-rdmanet/rdmanet"`)
	assert.NotContains(t, string(code), "/internal/")
}
