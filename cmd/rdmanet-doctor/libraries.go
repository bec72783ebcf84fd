package main

import (
	"errors"
	"path"
	"regexp"
	"strings"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// checkLibraries tells which libraries of rdma-core are there. Without an RDMA device
// in the kernel nobody misses them.
func (h *host) checkLibraries() (checks []check) {
	for _, d := range h.drivers {
		if errors.Is(d.Err, verbs.ErrNotSupported) {
			checks = append(checks, topic{"libraries", d.Name}.note("", "%s", oneLine(d.Err)))
		}
		for _, l := range d.Libraries {
			t := topic{"libraries", l.Name}
			switch {
			case l.Err == nil:
				checks = append(checks, t.ok("%s, %s", rdmaCore(l.Path), l.Path))
			case len(h.kernelDevices()) > 0:
				checks = append(checks, t.fail(h.install(), "%s", oneLine(l.Err)))
			default:
				checks = append(checks, t.note(h.install(), "%s", oneLine(l.Err)))
			}
		}
	}
	return checks
}

// The files of rdma-core end in the version of the interface and that of rdma-core:
// libibverbs.so.1.14.44.0 is from 44.0.
var versionOfFile = regexp.MustCompile(`\.so\.\d+\.\d+\.(\d+\.\d+)$`)

// rdmaCore is the release of rdma-core that a library's file is from.
func rdmaCore(file string) string {
	m := versionOfFile.FindStringSubmatch(path.Base(file))
	if m == nil {
		return "of an unknown version"
	}
	return "rdma-core " + m[1]
}

// install is the line that installs the libraries of rdma-core.
func (h *host) install() string {
	for _, family := range []struct{ like, line string }{
		{"debian", "apt-get install ibverbs-providers librdmacm1"},
		{"fedora", "dnf install libibverbs librdmacm"},
		{"suse", "zypper install libibverbs librdmacm1"},
		{"arch", "pacman -S rdma-core"},
	} {
		for line := range strings.Lines(h.read("etc/os-release")) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			if (key == "ID" || key == "ID_LIKE") && strings.Contains(value, family.like) {
				return family.line
			}
		}
	}
	return "apt-get install ibverbs-providers librdmacm1"
}
