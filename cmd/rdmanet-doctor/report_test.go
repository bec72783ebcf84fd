package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the files in testdata")

// golden compares with a file in testdata.
func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, got, 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got))
}

// The JSON is what main.go says. A change here that is no addition needs another version.
func TestJSON(t *testing.T) {
	d := roce()
	d.Ports[0].LID = 7
	d.Err = errors.Join(errors.New("port 2: busy"), errors.New("port 3: busy"))
	h := fakeHost(withRoCE, d)
	var out bytes.Buffer
	require.NoError(t, all(t, h).writeJSON(&out))
	golden(t, "testdata/report.json", out.Bytes())
}

// Lists that are empty are lists.
func TestJSONOfNothing(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, all(t, host{goos: "plan9", goarch: "mips"}).writeJSON(&out))
	assert.NotContains(t, out.String(), "null")
	assert.Contains(t, out.String(), `"devices": []`)
	assert.Contains(t, out.String(), `"version": 2`)
}
