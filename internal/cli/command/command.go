// Package command is what all programs of this module have in common: how their flags
// are checked, and what their exit status means.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
)

// Exit statuses beside 0.
const (
	ExitFailed      = 1
	ExitUsage       = 2
	ExitInterrupted = 130
)

// usageError says that the flags make no sense.
type usageError struct {
	error
	printed bool
}

func (e usageError) Unwrap() error { return e.error }

// Parse parses the flags and has check say what is wrong with them together.
// Arguments that are no flags are refused. The error is for Status.
func Parse(fs *flag.FlagSet, args []string, check func() error) error {
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return usageError{error: err, printed: true}
	}
	if fs.NArg() > 0 {
		return usageError{error: fmt.Errorf("unexpected argument %q: %s takes flags only, see -help", fs.Arg(0), fs.Name())}
	}
	if err := check(); err != nil {
		return usageError{error: err}
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
		if !usage.printed {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		}
		return ExitUsage
	case ctx.Err() != nil:
		fmt.Fprintf(os.Stderr, "%s: interrupted\n", name)
		return ExitInterrupted
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	return ExitFailed
}
