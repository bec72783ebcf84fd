package main

import (
	"bytes"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func installedDial(t *testing.T) []byte {
	t.Helper()
	packages, err := listPackages([]string{"net"})
	require.NoError(t, err)
	src, err := os.ReadFile(filepath.Join(packages["net"].Dir, "dial.go"))
	require.NoError(t, err)
	return src
}

// TestHookInstalled takes the release of Go that runs the test.
func TestHookInstalled(t *testing.T) {
	src := installedDial(t)
	out, err := hookedNet(src)
	require.NoError(t, err)
	require.Equal(t, bytes.Count(src, []byte("\n")), bytes.Count(out, []byte("\n")), "lines move")
	lines := strings.Split(string(out), "\n")
	was := strings.Split(string(src), "\n")
	var changed []string
	for i := range lines {
		if lines[i] != was[i] {
			changed = append(changed, strings.TrimPrefix(lines[i], was[i]))
		}
	}
	require.Equal(t, []string{
		" if DialOver != nil && isTCP(network) { return DialOver(ctx, d, network, address) };",
		" if ListenOver != nil && isTCP(network) { return ListenOver(ctx, lc, network, address) };",
	}, changed)
	for name, src := range map[string][]byte{"dial.go": out, "over.go": []byte(netOver), "over_test.go": overTest("x")} {
		_, err := parser.ParseFile(token.NewFileSet(), name, src, parser.SkipObjectResolution)
		assert.NoError(t, err)
	}
}

// TestHookOtherRelease says what a release changed.
func TestHookOtherRelease(t *testing.T) {
	src := string(installedDial(t))
	for from, to := range map[string]string{
		"DialContext(ctx context.Context, network, address string)": "DialContext(ctx context.Context, network string, address Name)",
		") DialContext(":                  ") DialCtx(",
		"func (lc *ListenConfig) Listen(": "func (lc ListenConfig) Listen(",
		"(d *Dialer) DialContext(":        "(*Dialer) DialContext(",
	} {
		require.Contains(t, src, from)
		_, err := hookedNet([]byte(strings.Replace(src, from, to, 1)))
		assert.ErrorContains(t, err, "hook.go must", to)
	}
}
