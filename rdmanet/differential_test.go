package rdmanet

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A difference is one that is meant: at the steps marked with its name, TCP's and
// rdmanet's outcomes are of exactly these classes.
type difference struct {
	tcp, rdma string
	why       string
}

// differences are all ways in which a Conn does not behave as a *net.TCPConn does.
var differences = map[string]difference{
	"dial-timeout": {
		"context-deadline", "deadline+context-deadline",
		"package net finds os.ErrDeadlineExceeded in some dials that took too long and context.DeadlineExceeded in others; rdmanet's answer to both",
	},
	"listener-deadline-error": {
		"closed", "closed",
		"(*net.TCPListener).SetDeadline returns the bare net.ErrClosed; every error of rdmanet is a *net.OpError",
	},
	"sticky-reset": {
		"pipe", "reset",
		"the kernel tells of a reset once and of EPIPE or io.EOF from then on, so that whoever asks second does not learn that bytes were lost; rdmanet says it each time",
	},
	"sticky-reset-read": {"EOF", "reset", "as sticky-reset"},
	"write-after-close": {
		"ok", "pipe",
		"TCP learns that the peer reads no more when it answers the next packet, so one Write is lost; rdmanet was told before",
	},
	"readfrom-asks-first": {
		"ok", "closed",
		"package net reads from the source before it finds out that it cannot send; rdmanet takes nothing from a source that it cannot send on",
	},
}

// TestDifferential runs each script over TCP and over rdmanet in all flavours and
// finds the same results, errors and order, but for the differences above.
func TestDifferential(t *testing.T) {
	mostlyWaits(t)
	used := map[string]bool{}
	for _, s := range loadScripts(t, "testdata/differential/*.txt") {
		for _, st := range s.steps {
			used[st.difference] = true
		}
		if s.loopback && !hasLoopback() {
			continue // TestNoLoopback has what comes instead
		}
		t.Run(s.name, func(t *testing.T) {
			want := s.run(t, overTCP{})
			atOnce(t, flavours(), flavourName, func(t *testing.T, fl flavour) {
				compare(t, s, want, s.run(t, overRDMA{fl}))
			})
		})
	}
	for name := range differences {
		assert.True(t, used[name], "no script shows the difference %q", name)
	}
}

func compare(t *testing.T, s script, want, got []outcome) {
	t.Helper()
	for i, st := range s.steps {
		tcp, rdma := want[i], got[i]
		if st.difference == "" {
			if tcp.value != rdma.value || !rdma.err.matches(tcp.err) {
				t.Errorf("line %d: %s\n\ttcp:  %v\n\trdma: %v", st.line, st, tcp, rdma)
			}
			continue
		}
		d, ok := differences[st.difference]
		if !ok {
			t.Errorf("line %d: there is no difference %q", st.line, st.difference)
		}
		if tcp.err.class != d.tcp || rdma.err.class != d.rdma {
			t.Errorf("line %d: %s: the difference %q is %s against %s\n\ttcp:  %v\n\trdma: %v",
				st.line, st, st.difference, d.tcp, d.rdma, tcp, rdma)
		}
	}
}
