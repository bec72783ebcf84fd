package over

import (
	"fmt"
	"os"
	"strings"
)

// Lines of the file that EnvEvents names.
const (
	dialled  = "dialled\n"
	listened = "listened\n"
)

var (
	over   = networkOr(os.Getenv(EnvNetwork), "rdma")
	events = openEvents(os.Getenv(EnvEvents))
)

func networkOr(network, otherwise string) string {
	if network == "" {
		return otherwise
	}
	return network
}

// openEvents opens the file for appending: a test may start its own binary again.
func openEvents(name string) *os.File {
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		panic(err)
	}
	return f
}

// record adds a line, in one write so that lines of several processes do not mix.
func record(event string) {
	if events == nil {
		return
	}
	if _, err := events.WriteString(event); err != nil {
		panic(err)
	}
}

// Events are the lines of such a file.
type Events struct{ Dialled, Listened int }

// ReadEvents counts the lines of the file name; none if there is no such file.
func ReadEvents(name string) (Events, error) {
	var e Events
	lines, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		return e, err
	}
	for line := range strings.Lines(string(lines)) {
		switch line {
		case dialled:
			e.Dialled++
		case listened:
			e.Listened++
		default:
			return e, fmt.Errorf("%s: unknown line %q", name, line)
		}
	}
	return e, nil
}
