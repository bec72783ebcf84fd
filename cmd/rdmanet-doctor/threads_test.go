package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rdmanet/go-rdmanet/rdmanet"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// processes is a host that allows its user so many.
func processes(n string) files {
	return withRoCE.with(files{"proc/self/limits": withRoCE["proc/self/limits"] + "\nMax processes             " + n + "     " + n + "     processes"})
}

func TestThreads(t *testing.T) {
	slice := func(pids, used string) files {
		return withRoCE.with(files{"sys/fs/cgroup/user.slice/pids.max": pids, "sys/fs/cgroup/user.slice/pids.current": used})
	}
	of := func(uids, threads string) string { return "Name:\tx\nUid:\t" + uids + "\nThreads:\t" + threads }
	running := files{
		"proc/self/status": of("7\t0\t0\t0", "9"), "proc/12/status": of("7\t0\t0\t0", "9"), "proc/13/status": of("7\t7\t7\t7", "91"),
		"proc/1/status": of("0\t0\t0\t0", "500"), "proc/14/status": "", "proc/sys/status": of("7\t7\t7\t7", "500"),
	}
	for name, tt := range map[string]struct {
		files  files
		want   status
		detail string
		fix    string
	}{
		"nothing is known":      {withRoCE, statusOK, "no limit", ""},
		"user":                  {processes("31000"), statusOK, "the user may have 31000 processes and threads together (ulimit -u); a program with connections may need 64", ""},
		"user, unlimited":       {processes("unlimited"), statusOK, "no limit", ""},
		"user, too few":         {processes("63"), statusFail, "may have 63 processes and threads together (ulimit -u): a program with connections may need 64 threads", "sudo prlimit --pid $$ --nproc=65536"},
		"user, just enough":     {processes("64"), statusOK, "may have 64", ""},
		"user, others run":      {processes("163").with(running), statusFail, "may have 163 processes and threads together (ulimit -u) and has 100: a program with connections may need 64 threads", "sudo prlimit --pid $$ --nproc=65536"},
		"user, others fit":      {processes("164").with(running), statusOK, "may have 164 processes and threads together (ulimit -u) and has 100; a program", ""},
		"user, more than fit":   {processes("90").with(running), statusFail, "has 100", "sudo prlimit --pid $$ --nproc=65536"},
		"root":                  {processes("32").with(files{"proc/self/status": asRoot}), statusOK, "no limit", ""},
		"cgroup":                {slice("2000", "100"), statusOK, "room for 1900 more threads (/sys/fs/cgroup/user.slice/pids.max)", ""},
		"cgroup, max":           {slice("max", "100"), statusOK, "no limit", ""},
		"cgroup, full":          {slice("100", "120"), statusFail, "room for 0 more threads", "echo max | sudo tee /sys/fs/cgroup/user.slice/pids.max"},
		"container, nearly":     {slice("150", "100").with(files{".dockerenv": ""}), statusFail, "room for 50 more", "docker update --pids-limit -1 CONTAINER"},
		"cgroup above":          {slice("2000", "100").with(files{"sys/fs/cgroup/pids.max": "60"}), statusFail, "(/sys/fs/cgroup/pids.max)", "echo max | sudo tee /sys/fs/cgroup/pids.max"},
		"system":                {withRoCE.with(files{"proc/sys/kernel/threads-max": "1000", "proc/loadavg": "0.1 0.2 0.3 2/400 4711"}), statusOK, "room for 600 more threads (kernel.threads-max)", ""},
		"system, full":          {withRoCE.with(files{"proc/sys/kernel/threads-max": "1000", "proc/loadavg": "0.1 0.2 0.3 2/950 4711"}), statusFail, "room for 50 more", "sudo sysctl -w kernel.threads-max=65536"},
		"the nearest is told":   {processes("500").with(files{"proc/sys/kernel/threads-max": "400"}), statusOK, "kernel.threads-max", ""},
		"files that say nought": {withRoCE.with(files{"proc/sys/kernel/threads-max": "many", "proc/loadavg": "0"}), statusOK, "no limit", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := fakeHost(tt.files, roce())
			c := h.checkThreads()
			assert.Equal(t, tt.want, c.Status, c.Detail)
			assert.Contains(t, c.Detail, tt.detail)
			assert.Equal(t, tt.fix, c.Fix)
		})
	}
}

// The driver bounds how many threads wait in the libraries, for each device and for all.
func TestNeededThreads(t *testing.T) {
	iwarp := roce()
	iwarp.Transport = verbs.TransportIWARP
	for name, tt := range map[string]struct {
		devices []rdmanet.Device
		want    int
	}{
		"software":  {nil, ownThreads + 2},
		"a card":    {[]rdmanet.Device{roce()}, ownThreads + 2 + 24 + 22},
		"two cards": {[]rdmanet.Device{roce(), roce()}, ownThreads + 2 + 2*24 + 22},
		"iWARP":     {[]rdmanet.Device{iwarp}, ownThreads + 2 + 24 + 22 + 24},
		"both":      {[]rdmanet.Device{roce(), iwarp}, ownThreads + 2 + 2*24 + 22 + 24},
		"two iWARP": {[]rdmanet.Device{iwarp, iwarp}, ownThreads + 2 + 2*24 + 22 + 24},
	} {
		h := fakeHost(withRoCE, tt.devices...)
		assert.Equal(t, tt.want, h.neededThreads(), name)
	}
}
