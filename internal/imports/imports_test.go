// Package imports checks what this module imports and requires.
package imports

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/rdmanet/go-rdmanet"

// goTool runs the go command in this module, for a system.
func goTool(t *testing.T, goos string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env = append(cmd.Environ(), "GOOS="+goos, "GOWORK=off")
	out, err := cmd.Output()
	if exit, ok := err.(*exec.ExitError); ok {
		require.NoError(t, err, "%s", exit.Stderr)
	}
	require.NoError(t, err)
	return string(out)
}

// TestImports checks what a program gets with the packages that it imports. The
// standard library's HTTP tests run over these connections, so that net/http in here
// would be an import cycle; expvar serves a page that nobody asked for.
func TestImports(t *testing.T) {
	allowed := []string{
		module, "github.com/ebitengine/purego", "github.com/libp2p/go-buffer-pool", "golang.org/x/sys",
		"github.com/KimMachineGun/automemlimit", "github.com/pbnjay/memory", // which it imports
	}
	for _, goos := range []string{"linux", "darwin", "windows"} {
		t.Run(goos, func(t *testing.T) {
			deps := goTool(t, goos, "list", "-deps", "-f", "{{.ImportPath}} {{with .Module}}{{.Path}}{{end}}", module+"/rdmanet", module+"/ring", module+"/cm", module+"/verbs")
			require.Contains(t, deps, module+"/rdmanet ")
			for line := range strings.Lines(deps) {
				path, from, _ := strings.Cut(strings.TrimSpace(line), " ")
				require.False(t, path == "net/http" || strings.HasPrefix(path, "net/http/") || path == "expvar", "the core imports %s", path)
				if from != "" {
					require.Contains(t, allowed, from, "the core imports %s", path)
				}
			}
		})
	}
}

// TestArrows checks what the packages of the house import of one another, tests apart: only what
// stands further down in docs/ARCHITECTURE.md. A package that is not named here has no place yet.
func TestArrows(t *testing.T) {
	allowed := map[string]string{
		"rdmanet":                    "cm internal/asynclog internal/cacheline internal/link internal/link/hello internal/link/memory internal/racedetector internal/shortage internal/verbs/driver rdmanet/internal/dialtrace ring ring/lane verbs",
		"rdmanet/debughttp":          "rdmanet",
		"rdmanet/internal/dialtrace": "",
		"rdmanet/rdmahttp":           "rdmanet rdmanet/internal/dialtrace",

		"internal/link":        "cm internal/asktwice internal/asynclog internal/cacheline internal/fdtimer internal/link/hello internal/link/memory internal/runtimer internal/shortage internal/verbs/driver ring ring/lane verbs",
		"internal/link/hello":  "cm internal/protocol internal/verbs/driver ring/lane",
		"internal/link/memory": "internal/verbs/driver ring/lane verbs",

		"cm":        "internal/protocol internal/verbs/driver internal/verbs/drivers verbs",
		"ring":      "",
		"ring/lane": "internal/cacheline ring",

		"verbs": "",

		"internal/verbs/driver":       "verbs",
		"internal/verbs/drivers":      "internal/verbs/driver internal/verbs/ibv internal/verbs/soft",
		"internal/verbs/event":        "internal/verbs/driver verbs",
		"internal/verbs/faulty":       "internal/verbs/driver internal/verbs/event internal/verbs/wakeup verbs",
		"internal/verbs/ibv":          "internal/asynclog internal/fdtimer internal/verbs/driver internal/verbs/event internal/verbs/object internal/verbs/wakeup verbs",
		"internal/verbs/object":       "verbs",
		"internal/verbs/soft":         "internal/fdtimer internal/runtimer internal/verbs/driver internal/verbs/event internal/verbs/object internal/verbs/soft/control internal/verbs/soft/shm internal/verbs/wakeup verbs",
		"internal/verbs/soft/control": "internal/verbs/driver internal/verbs/soft/shm internal/verbs/wakeup verbs",
		"internal/verbs/soft/shm":     "internal/cacheline internal/verbs/driver verbs",
		"internal/verbs/verbstest":    "internal/verbs/driver verbs",
		"internal/verbs/wakeup":       "",
	}
	var packages []string
	for _, room := range []string{"rdmanet", "internal/link", "cm", "ring", "verbs", "internal/verbs"} {
		packages = append(packages, module+"/"+room+"/...")
	}
	listed := goTool(t, "linux", append([]string{"list", "-f", "{{.ImportPath}}{{range .Imports}} {{.}}{{end}}"}, packages...)...)
	found := 0
	for line := range strings.Lines(listed) {
		imports := strings.Fields(strings.ReplaceAll(line, module+"/", ""))
		below, known := allowed[imports[0]]
		require.True(t, known, "%s has no place in the house yet", imports[0])
		found++
		for _, path := range imports[1:] {
			ours := strings.Contains(line, " "+module+"/"+path)
			require.True(t, !ours || slices.Contains(strings.Fields(below), path), "%s imports %s", imports[0], path)
		}
	}
	require.Equal(t, len(allowed), found, "a package of the table is gone")
}

// TestRequirements checks that this module asks for no other modules than its design
// names, which is what a user's go.sum sees.
func TestRequirements(t *testing.T) {
	var mod struct{ Require []struct{ Path string } }
	require.NoError(t, json.Unmarshal([]byte(goTool(t, "linux", "mod", "edit", "-json")), &mod))
	var required []string
	for _, r := range mod.Require {
		required = append(required, r.Path)
	}
	slices.Sort(required)
	require.Equal(t, []string{
		"github.com/KimMachineGun/automemlimit",
		"github.com/ebitengine/purego",
		"github.com/libp2p/go-buffer-pool",
		"github.com/pbnjay/memory", // automemlimit's
		"github.com/stretchr/testify",
		"go.yaml.in/yaml/v3", // testify's
		"golang.org/x/net",   // nettest, netutil
		"golang.org/x/sys",
	}, required)

	// And what these bring along: testify's and x/net's own, of which nothing is compiled.
	known := append(required, module, "go", "toolchain",
		"github.com/stretchr/objx", "golang.org/x/crypto", "golang.org/x/term", "golang.org/x/text")
	for line := range strings.Lines(goTool(t, "linux", "mod", "graph")) {
		for _, required := range strings.Fields(line) {
			path, _, _ := strings.Cut(required, "@")
			require.Contains(t, known, path, "go mod graph: %s", line)
		}
	}
}
