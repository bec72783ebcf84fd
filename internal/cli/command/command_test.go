package command

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestStatus(t *testing.T) {
	wrong, failure := errors.New("-n must be odd"), errors.New("no such host")
	parse := func(check error, args ...string) error {
		fs := flag.NewFlagSet("test", flag.ContinueOnError)
		fs.SetOutput(io.Discard)
		fs.Int("n", 1, "")
		return Parse(fs, args, func() error { return check })
	}
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	for _, c := range []struct {
		name string
		ctx  context.Context
		err  error
		want int
	}{
		{"success", t.Context(), nil, 0},
		{"flags that are right", t.Context(), parse(nil, "-n", "3"), 0},
		{"help", t.Context(), parse(nil, "-help"), 0},
		{"unknown flag", t.Context(), parse(nil, "-x"), ExitUsage},
		{"argument", t.Context(), parse(nil, "file"), ExitUsage},
		{"flags that contradict", t.Context(), parse(wrong), ExitUsage},
		{"flags that contradict, interrupted", interrupted, parse(wrong), ExitUsage},
		{"failure", t.Context(), failure, ExitFailed},
		{"interrupted", interrupted, failure, ExitInterrupted},
		{"interrupted when it was done", interrupted, nil, 0},
	} {
		assert.Equal(t, c.want, Status(c.ctx, "test", c.err), c.name)
	}
	assert.ErrorIs(t, parse(wrong), wrong)
	assert.ErrorContains(t, parse(nil, "file"), `unexpected argument "file": test takes flags only`)
}

func TestUsageIsForHelp(t *testing.T) {
	var out bytes.Buffer
	fs := flag.NewFlagSet("test", flag.ContinueOnError)
	fs.SetOutput(&out)
	fs.Int("n", 1, "`number` of things")
	err := Parse(fs, []string{"-n", "x"}, nil)
	assert.ErrorContains(t, err, `invalid value "x" for flag -n`)
	assert.ErrorContains(t, err, "see -help")
	assert.Empty(t, out.String())
	assert.ErrorIs(t, Parse(fs, []string{"-help"}, nil), flag.ErrHelp)
	assert.Contains(t, out.String(), "number of things")
}

func TestGiven(t *testing.T) {
	fs := flag.NewFlagSet("test", flag.ContinueOnError)
	fs.Int("n", 1, "")
	fs.Int("m", 1, "")
	assert.NoError(t, fs.Parse([]string{"-n", "1"}))
	assert.Equal(t, map[string]bool{"n": true}, Given(fs), "also with the default's value")
}
