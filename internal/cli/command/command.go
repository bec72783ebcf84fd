// Package command is what all programs of this module have in common: how their flags
// are checked, and what their exit status means.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// Exit statuses beside 0.
const (
	ExitFailed      = 1
	ExitUsage       = 2
	ExitInterrupted = 130
)

// usageError means that the flags make no sense.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Parse parses the flags and has check say what is wrong with them together.
// Arguments that are no flags are refused. The error is for Status. All flags are
// described for -help alone: below a mistake they would hide what it is.
func Parse(fs *flag.FlagSet, args []string, check func() error) error {
	out := fs.Output()
	fs.SetOutput(io.Discard)
	err := fs.Parse(args)
	fs.SetOutput(out)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fs.Usage()
		return err
	case err != nil:
		return usageError{fmt.Errorf("%w, see -help", err)}
	case fs.NArg() > 0:
		return usageError{fmt.Errorf("unexpected argument %q: %s takes flags only, see -help", fs.Arg(0), fs.Name())}
	}
	if err := check(); err != nil {
		return usageError{err}
	}
	return nil
}

// Given tells which flags were given.
func Given(fs *flag.FlagSet) map[string]bool {
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	return given
}

// Status turns the outcome of the command into an exit status and says what failed.
// A ctx that is done means that the command was interrupted.
func Status(ctx context.Context, name string, err error) int {
	var usage usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return ExitUsage
	case ctx.Err() != nil:
		fmt.Fprintf(os.Stderr, "%s: interrupted\n", name)
		return ExitInterrupted
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	return ExitFailed
}
