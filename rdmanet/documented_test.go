package rdmanet

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLogLinesAreDocumented looks for every line that is logged, by this package, by those of
// links or by drivers, in docs/OPERATIONS.md, and for what stands there in the code.
func TestLogLinesAreDocumented(t *testing.T) {
	code := codeOf(t, ".", "../internal/asynclog", "../internal/link", "../internal/link/hello", "../internal/link/memory", "../internal/verbs/ibv", "../internal/verbs/soft")
	doc := readDoc(t, "OPERATIONS.md")
	line := regexp.MustCompile(`\.(?:Debug|Info|Warn|Error|Log)\([^"\n]*"((?:rdmanet|link): [^"]+)",`)
	logged := map[string]bool{}
	for _, m := range line.FindAllStringSubmatch(code, -1) {
		logged[m[1]] = true
	}
	require.GreaterOrEqual(t, len(logged), 8)
	for text := range logged {
		require.Contains(t, doc, "`"+text+"`", "a line that is logged is not described")
	}
	for _, m := range regexp.MustCompile("`((?:rdmanet|link): [^`]+)`").FindAllStringSubmatch(doc, -1) {
		require.True(t, logged[m[1]], "%q is described and never logged", m[1])
	}
}

// TestErrorsAreDocumented looks for every exported error value, and every reason for a
// fallback, in docs/TROUBLESHOOTING.md.
func TestErrorsAreDocumented(t *testing.T) {
	doc := readDoc(t, "TROUBLESHOOTING.md")
	declared := regexp.MustCompile(`(?m)^(?:var |\t)(Err[A-Z]\w*) += `)
	n := 0
	for _, pkg := range []string{"rdmanet", "cm", "ring", "verbs"} {
		for _, m := range declared.FindAllStringSubmatch(codeOf(t, "../"+pkg), -1) {
			n++
			require.Contains(t, doc, "`"+pkg+"."+m[1]+"`")
		}
	}
	require.Greater(t, n, 20)
	for _, reason := range fallbackNames {
		require.Contains(t, doc, "| `"+reason+"` |")
	}
}

// TestLinks follows the links between the pages of docs and those beside README.md, also to a
// heading of a page.
func TestLinks(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	atRoot, err := filepath.Glob("../*.md")
	require.NoError(t, err)
	link := regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]*))?\)`)
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	for _, page := range append(pages, atRoot...) {
		b, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(b), -1) {
			to := page
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(page), m[1])
			}
			if _, err := os.Stat(to); assert.NoError(t, err, "a link of %s", page) && m[2] != "" {
				assert.Contains(t, anchorsOf(t, to), m[2], "%s leads to %s", page, to)
			}
		}
		if name := strings.TrimPrefix(page, "../"); name != "README.md" {
			assert.Contains(t, string(readme), "]("+name+")", "README.md does not lead there")
		}
	}
}

// anchorsOf returns the anchors that GitHub gives to the headings of a page: in lower case, without
// punctuation and with hyphens for spaces; one that has been is numbered.
func anchorsOf(t *testing.T, page string) (anchors []string) {
	b, err := os.ReadFile(page)
	require.NoError(t, err)
	headings := regexp.MustCompile("(?m)^#{1,6} +(.*)$")
	target := regexp.MustCompile(`\]\([^)]*\)`)
	for _, m := range headings.FindAllStringSubmatch(string(b), -1) {
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			default:
				return -1
			}
		}, target.ReplaceAllString(m[1], ""))
		for first, n := anchor, 1; slices.Contains(anchors, anchor); n++ {
			anchor = fmt.Sprintf("%s-%d", first, n)
		}
		anchors = append(anchors, anchor)
	}
	return anchors
}

// codeOf is the code of the packages in dirs, without tests.
func codeOf(t *testing.T, dirs ...string) string {
	t.Helper()
	return goOf(t, false, dirs...)
}

// testsOf is the code of the tests of packages.
func testsOf(t *testing.T, dirs ...string) string {
	t.Helper()
	return goOf(t, true, dirs...)
}

func goOf(t *testing.T, tests bool, dirs ...string) string {
	t.Helper()
	var code strings.Builder
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			if name := e.Name(); strings.HasSuffix(name, ".go") && strings.HasSuffix(name, "_test.go") == tests {
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

// declaredTests are the names of all tests, fuzz targets and benchmarks.
func declaredTests(t *testing.T) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == ".git" {
			return fs.SkipDir // where files come and go
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(path)
		for _, m := range function.FindAllStringSubmatch(string(code), -1) {
			tests[m[1]] = true
		}
		return err
	}))
	return tests
}

// TestNamedTestsExist looks for every test that a page of docs names, as those of the
// invariants in docs/ARCHITECTURE.md.
func TestNamedTestsExist(t *testing.T) {
	tests := declaredTests(t)
	name := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)\\w+)(?:/[^`]*)?`")
	pages, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	named := 0
	for _, page := range pages {
		b, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range name.FindAllStringSubmatch(string(b), -1) {
			named++
			assert.True(t, tests[m[1]], "%s names %s, which does not exist", page, m[1])
		}
	}
	require.Greater(t, named, 100)
}

// TestReliabilityIsTested looks for the tests that docs/RELIABILITY.md names: each row of
// its tables ends with one at least, and each is there.
func TestReliabilityIsTested(t *testing.T) {
	tests := declaredTests(t)
	name := regexp.MustCompile("`([A-Z]\\w+)(?:/[^`]*)?`")
	rows := 0
	for line := range strings.Lines(readDoc(t, "RELIABILITY.md")) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| fault ") {
			continue
		}
		rows++
		cells := strings.Split(strings.Trim(line, "|"), "|")
		named := name.FindAllStringSubmatch(cells[len(cells)-1], -1)
		assert.NotEmpty(t, named, "a row without a test: %s", line)
		for _, m := range named {
			assert.True(t, tests[m[1]], "%s is named and does not exist: %s", m[1], line)
		}
	}
	require.NotZero(t, rows)
}
