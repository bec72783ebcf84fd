package rdmanet

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLogLinesAreDocumented looks for every line that is logged in docs/OPERATIONS.md,
// and for what stands there in the code.
func TestLogLinesAreDocumented(t *testing.T) {
	code := codeOf(t, ".")
	doc := readDoc(t, "OPERATIONS.md")
	line := regexp.MustCompile(`"(rdmanet: [^"]+)",`)
	logged := map[string]bool{}
	for _, m := range line.FindAllStringSubmatch(code, -1) {
		logged[m[1]] = true
	}
	require.GreaterOrEqual(t, len(logged), 8)
	for text := range logged {
		require.Contains(t, doc, "`"+text+"`", "a line that is logged is not described")
	}
	for _, m := range regexp.MustCompile("`(rdmanet: [^`]+)`").FindAllStringSubmatch(doc, -1) {
		require.True(t, logged[m[1]], "%q is described and never logged", m[1])
	}
}

// codeOf is the code of the packages in dirs, without tests.
func codeOf(t *testing.T, dirs ...string) string {
	t.Helper()
	var code strings.Builder
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			if name := e.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
				b, err := os.ReadFile(dir + "/" + name)
				require.NoError(t, err)
				code.Write(b)
			}
		}
	}
	return code.String()
}

func readDoc(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("../docs/" + name)
	require.NoError(t, err)
	return string(b)
}
