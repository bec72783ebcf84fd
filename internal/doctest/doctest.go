// Package doctest reads the examples out of a page of docs/, for tests that compare them with
// what the code makes.
package doctest

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A Page is the text of a page of docs/.
type Page struct {
	name, text string
}

// Read reads a page. Root is the way from the test's folder to that of the module.
func Read(t testing.TB, root, name string) Page {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join(root, "docs", name))
	require.NoError(t, err)
	return Page{name, string(doc)}
}

// String returns the whole text.
func (p Page) String() string { return p.text }

// Block returns what a fenced block contains, by what stands behind its opening fence.
func (p Page) Block(t testing.TB, info string) string {
	t.Helper()
	m := regexp.MustCompile("(?s)\n```" + regexp.QuoteMeta(info) + "\n(.*?)```\n").FindStringSubmatch(p.text)
	require.NotNil(t, m, "no block %q in docs/%s", info, p.name)
	return m[1]
}

// Bytes returns what the block of "hex" and name spells.
func (p Page) Bytes(t testing.TB, name string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(p.Block(t, "hex "+name)), ""))
	require.NoError(t, err)
	return b
}
