package main

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseEvents(t *testing.T) {
	rep, err := parseEvents([]byte(`{"Action":"start"}
{"Action":"run","Test":"TestA"}
{"Action":"run","Test":"TestA/x"}
{"Action":"output","Test":"TestA/x","Output":"why\n"}
{"Action":"fail","Test":"TestA/x"}
{"Action":"fail","Test":"TestA"}
{"Action":"run","Test":"TestB"}
{"Action":"pass","Test":"TestB"}
{"Action":"run","Test":"TestC"}
{"Action":"output","Output":"panic: test timed out\n"}
{"Action":"fail"}
`))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"TestA": "fail", "TestA/x": "fail", "TestB": "pass", "TestC": "run"}, rep.verdict)
	require.Equal(t, 1, rep.tests("pass"))
	require.Equal(t, 2, rep.tests("fail"))
	require.Equal(t, []string{"TestA fails:\n\twhy", "TestC does not end:\n"}, rep.complaints())

	_, err = parseEvents([]byte("no JSON"))
	require.ErrorContains(t, err, "no JSON")
}

func TestComplaintsOfAll(t *testing.T) {
	rep, err := parseEvents([]byte(`{"Action":"run","Test":"TestA"}
{"Action":"pass","Test":"TestA"}
{"Action":"output","Output":"goroutine leaked\n"}
{"Action":"fail"}
`))
	require.NoError(t, err)
	require.Empty(t, rep.complaints())
	rep.failed = true
	require.Equal(t, []string{"the tests fail as a whole:\n\tgoroutine leaked"}, rep.complaints())
}

func TestPattern(t *testing.T) {
	assert.Equal(t, "^TestA$|^TestB$/^x\\.y$", pattern([]string{"TestA", "TestB/x.y"}))
	assert.False(t, regexp.MustCompile(pattern(nil)).MatchString("TestA"))
}
