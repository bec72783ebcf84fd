package main

import (
	"flag"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var compile = flag.Bool("compile", false, "compile what has no checks, and see that the tests of package ring miss them")

// TestOverlay sees that the checks are still where they are looked for, and that what is
// left without them is Go.
func TestOverlay(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	dir := t.TempDir()
	_, err = writeOverlay(root, dir)
	require.NoError(t, err)
	edited, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, edited)
	for _, name := range edited {
		_, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
	}
}

// TestWithoutChecks sees that all builds without the checks, and that they are gone then:
// the tests of package ring miss them.
func TestWithoutChecks(t *testing.T) {
	if !*compile {
		t.Skip("compiles a part of the module once more: go test ./internal/checkcost -compile")
	}
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	overlay, err := writeOverlay(root, t.TempDir())
	require.NoError(t, err)
	run := func(args ...string) ([]byte, error) {
		cmd := exec.Command("go", args...)
		cmd.Dir = root
		return cmd.CombinedOutput()
	}
	out, err := run("build", "-overlay", overlay, "./ring", "./rdmanet", "./internal/verbs/soft")
	require.NoError(t, err, "%s", out)
	for _, name := range []string{"FuzzParseDoorbell", "FuzzReceiverData", "FuzzSenderUpdate"} {
		out, err = run("test", "-count=1", "-run", "^"+name+"$", "./ring")
		require.NoError(t, err, "%s", out)
		out, err = run("test", "-count=1", "-overlay", overlay, "-run", "^"+name+"$", "./ring")
		require.Error(t, err, "%s passes without the checks:\n%s", name, out)
	}
}
