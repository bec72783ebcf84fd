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
			deps := goTool(t, goos, "list", "-deps", "-f", "{{.ImportPath}} {{with .Module}}{{.Path}}{{end}}", module+"/rdmanet", module+"/ring", module+"/cm")
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

// TestImportsOfOurs checks what packages that stand by themselves import of this module, tests apart.
func TestImportsOfOurs(t *testing.T) {
	const module = "github.com/rdmanet/go-rdmanet/"
	for path, allowed := range map[string][]string{
		"ring":                 nil,
		"ring/lane":            {"ring"},
		"internal/link/hello":  {"cm", "internal/verbs", "ring/lane"},
		"internal/link/memory": {"internal/verbs", "ring/lane"},
	} {
		t.Run(path, func(t *testing.T) {
			imports := goTool(t, "linux", "list", "-f", "{{range .Imports}}{{println .}}{{end}}", "./"+path)
			for line := range strings.Lines(imports) {
				if ours, ok := strings.CutPrefix(strings.TrimSpace(line), module); ok {
					require.Contains(t, allowed, ours)
				}
			}
		})
	}
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
