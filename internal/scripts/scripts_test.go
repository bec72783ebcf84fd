// Package scripts checks how the scripts of this repository answer who asks what they do.
package scripts

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ask runs a script, which only says something.
func ask(t *testing.T, script string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // one that takes it for something else may run for hours
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", append([]string{filepath.Join("../..", script)}, args...)...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, "%s %q: %s", script, args, errs.String())
	require.Empty(t, errs.String())
	return string(out)
}

func needBash(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip(err)
	}
}

// TestHelp: every script says what it does and how it is called, and does nothing else.
func TestHelp(t *testing.T) {
	needBash(t)
	var scripts []string
	for _, dir := range []string{".ci", "softroce"} {
		entries, err := os.ReadDir(filepath.Join("../..", dir))
		require.NoError(t, err)
		for _, e := range entries {
			if name := filepath.Join(dir, e.Name()); e.Type().IsRegular() {
				scripts = append(scripts, name)
			}
		}
	}
	require.GreaterOrEqual(t, len(scripts), 11)
	for _, script := range scripts {
		text, err := os.ReadFile(filepath.Join("../..", script))
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(text), "#!/usr/bin/env bash\n# "), script)
		for _, flag := range []string{"-h", "--help"} {
			said := ask(t, script, flag)
			require.NotContains(t, said, "#", script)
			require.NotContains(t, said, "set -euo", script)
			first, _, _ := strings.Cut(said, "\n")
			require.Contains(t, string(text), "\n# "+first+"\n", script)
			require.Regexp(t, `(?m)^  +`+regexp.QuoteMeta(script)+`\b`, said, "how it is called")
		}
	}
}

// TestStepsAreNamed: .ci/run names its steps to who asks, as to who asks for one that there is not.
func TestStepsAreNamed(t *testing.T) {
	needBash(t)
	text, err := os.ReadFile("../../.ci/run")
	require.NoError(t, err)
	steps := regexp.MustCompile(`(?m)^step_(\w+)\(\)`).FindAllSubmatch(text, -1)
	require.Greater(t, len(steps), 20)
	for _, how := range []string{"help", "-h", "--help"} {
		said := ask(t, ".ci/run", how)
		_, named, found := strings.Cut(said, "The steps are:")
		require.True(t, found)
		require.Len(t, strings.Fields(named), len(steps))
		for _, s := range steps {
			require.Contains(t, strings.Fields(named), strings.ReplaceAll(string(s[1]), "_", "-"))
		}
	}
}
