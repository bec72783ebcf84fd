package soft

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFloors checks that the floors below the device import downward only: each, with its tests,
// imports of this module what is named here and nothing else.
func TestFloors(t *testing.T) {
	const module = "github.com/rdmanet/go-rdmanet/internal/"
	below := map[string][]string{
		"verbs/soft/control": {"verbs", "verbs/wakeup", "verbs/soft/shm"},
		"verbs/soft/shm":     {"verbs"},
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f",
		`{{.ImportPath}}{{range .Imports}} {{.}}{{end}}{{range .TestImports}} {{.}}{{end}}{{range .XTestImports}} {{.}}{{end}}`, "./...")
	cmd.Env = append(cmd.Environ(), "GOOS=linux", "GOARCH=amd64", "GOWORK=off")
	out, err := cmd.Output()
	require.NoError(t, err)
	found := 0
	for line := range strings.Lines(string(out)) {
		imports := strings.Fields(line)
		floor := strings.TrimPrefix(imports[0], module)
		if floor == "verbs/soft" {
			continue // the uppermost
		}
		found++
		require.Contains(t, below, floor, "it has no place among the floors yet")
		for _, path := range imports[1:] {
			if ours, ok := strings.CutPrefix(path, module); ok && ours != "leaktest" {
				require.Contains(t, below[floor], ours, "%s imports it", floor)
			}
		}
	}
	require.Len(t, below, found)
}
