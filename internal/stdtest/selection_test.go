package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseSelections(t *testing.T) {
	got, err := parseSelections(`
# a comment
package net/http 900
adapt TestA: wants: a type
except TestB/sub: no

package net 1
out b_test.go: else
`)
	require.NoError(t, err)
	require.Equal(t, []*selection{
		{pkg: "net/http", least: 900, adapt: []entry{{"TestA", "wants: a type"}}, except: []entry{{"TestB/sub", "no"}}},
		{pkg: "net", least: 1, out: []entry{{"b_test.go", "else"}}},
	}, got)
	require.Equal(t, []string{"TestA", "TestB/sub"}, got[0].listed())
}

func TestParseSelectionsFails(t *testing.T) {
	for text, want := range map[string]string{
		"except TestA: no":                          "tests.txt:1: except before the first package",
		"package net":                               "tests.txt:1: want: package PATH NUMBER",
		"package net 0":                             "tests.txt:1: want: package PATH NUMBER",
		"package net 1\nexcept TestA":               "tests.txt:2: want: except NAME: REASON",
		"package net 1\nexcept TestA: ":             "tests.txt:2: want: except NAME: REASON",
		"package net 1\nfrob TestA: no":             `tests.txt:2: unknown word "frob"`,
		"package net 1\n\nadapt T: a\nexcept T: no": "tests.txt:4: T is listed twice",
	} {
		_, err := parseSelections(text)
		assert.ErrorContains(t, err, want, text)
	}
}

// TestCommittedSelections reads the file that runs, and keeps it easy to look things up in.
func TestCommittedSelections(t *testing.T) {
	all, err := parseSelections(testsTxt)
	require.NoError(t, err)
	for _, want := range []string{"net", "net/http", "net/http/httputil", "net/rpc"} {
		assert.True(t, slices.ContainsFunc(all, func(s *selection) bool { return s.pkg == want }), want)
	}
	for _, s := range all {
		for _, list := range [][]entry{s.adapt, s.except, s.out} {
			assert.True(t, slices.IsSorted(names(list)), "%s: %q are not in order", s.pkg, names(list))
		}
	}
}
