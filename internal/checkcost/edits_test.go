package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOverlay sees that the checks are still where they are looked for, that all builds
// without them, and that they are gone then: the tests of package ring miss them.
func TestOverlay(t *testing.T) {
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
