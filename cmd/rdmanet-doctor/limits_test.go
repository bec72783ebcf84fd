package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

// limited is a host with an RDMA device, these limits and the capabilities of a user.
func limited(memlockSoft, memlockHard, nofile string) files {
	return withRoCE.with(files{"proc/self/limits": limits(memlockSoft, memlockHard, nofile, nofile)})
}

func TestMemlock(t *testing.T) {
	const kib = 1 << 10
	for _, tt := range []struct {
		name   string
		host   host
		need   costs
		want   status
		detail string
		fix    string
	}{
		{"not known", fakeHost(plain.without("proc/self/limits"), roce()), costs{}, statusOK, "not known, as /proc/self/limits does not tell it; connections", ""},
		{"unlimited", roceHost(), costs{}, statusOK, "unlimited; connections to 100 processes, up to 2 lanes for each, lock 42.2 MiB, 216 KiB for each lane", ""},
		{"enough", fakeHost(limited("16777216", "16777216", "1024"), roce()), costs{locked: 64 * kib}, statusOK, "16 MiB; connections to 100 processes, up to 2 lanes for each, lock 12.5 MiB, 64 KiB for each lane", ""},
		{"just enough", fakeHost(limited("13107200", "13107200", "1024"), roce()), costs{locked: 64 * kib}, statusOK, "12.5 MiB; connections to 100 processes", ""},
		{"too little", fakeHost(limited("65536", "unlimited", "1024"), roce()), costs{}, statusFail, "64 KiB is too little: connections to 100 processes, up to 2 lanes for each, lock 42.2 MiB", "ulimit -l unlimited"},
		{"too little by a byte", fakeHost(limited("13107199", "unlimited", "1024"), roce()), costs{locked: 64 * kib}, statusFail, "too little", "ulimit -l unlimited"},
		{"too little for good", fakeHost(limited("65536", "65536", "1024"), roce()), costs{}, statusFail, "too little", "sudo prlimit --pid $$ --memlock=unlimited"},
		{"too little in a container", fakeHost(limited("65536", "65536", "1024").with(files{".dockerenv": ""}), roce()), costs{}, statusFail, "too little", "docker run --ulimit memlock=-1 IMAGE"},
		{"root", fakeHost(limited("65536", "65536", "1024").with(files{"proc/self/status": asRoot}), roce()), costs{}, statusOK, "CAP_IPC_LOCK", ""},
		{"root of a user namespace", fakeHost(limited("65536", "65536", "1024").with(files{"proc/self/status": asRoot, "proc/self/uid_map": "0 1000 1"}), roce()),
			costs{}, statusFail, "too little", "sudo prlimit --pid $$ --memlock=unlimited"},
		{"software device", fakeHost(limited("65536", "65536", "1024")), costs{}, statusOK, "64 KiB; the software device locks no memory", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := tt.host.checkMemlock(tt.need, 100)
			assert.Equal(t, tt.want, c.Status)
			assert.Contains(t, c.Detail, tt.detail)
			assert.Equal(t, tt.fix, c.Fix)
		})
	}
}

func TestDescriptors(t *testing.T) {
	for _, tt := range []struct {
		name   string
		files  files
		need   costs
		want   status
		detail string
		fix    string
	}{
		{"enough", limited("0", "0", "1024"), costs{descriptors: 4}, statusOK, "1024; connections to 100 processes, up to 2 lanes for each, take 800, 4 for each lane", ""},
		{"just enough", limited("0", "0", "632"), costs{descriptors: 3}, statusOK, "632; connections to 100 processes, up to 2 lanes for each, take 600", ""},
		{"not measured", limited("0", "0", "1432"), costs{}, statusOK, "take 1400, 7 for each lane", ""},
		{"too few", limited("0", "0", "631"), costs{descriptors: 3}, statusFail, "631 are too few: connections to 100 processes, up to 2 lanes for each, take 600, 3 for each lane", "sudo prlimit --pid $$ --nofile=65536"},
		{"too few for root", limited("0", "0", "64").with(files{"proc/self/status": asRoot}), costs{}, statusFail, "64 are too few", "ulimit -n 65536"},
		{"too few in a container", limited("0", "0", "64").with(files{".dockerenv": ""}), costs{}, statusFail, "64 are too few", "docker run --ulimit nofile=65536 IMAGE"},
		{"not known", plain.without("proc/self/limits"), costs{}, statusOK, "not known, as /proc/self/limits does not tell it; connections", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := fakeHost(tt.files, roce())
			c := h.checkDescriptors(tt.need, 100)
			assert.Equal(t, tt.want, c.Status)
			assert.Contains(t, c.Detail, tt.detail)
			assert.Equal(t, tt.fix, c.Fix)
		})
	}
	h := fakeHost(limited("0", "0", "1024"), roce())
	assert.Equal(t, "sudo prlimit --pid $$ --nofile=1400032", h.checkDescriptors(costs{}, 100_000).Fix, "as many as it takes")
}

func TestLimitsAreRead(t *testing.T) {
	h := fakeHost(limited("65536", "unlimited", "1024"))
	assert.Equal(t, limit{65536, math.MaxUint64, true}, h.limit(memlock))
	assert.Equal(t, limit{1024, 1024, true}, h.limit(nofile))
	h = fakeHost(files{})
	assert.True(t, h.limit(memlock).unlimited())
}

func TestCapabilities(t *testing.T) {
	h := fakeHost(withRoCE.with(files{"proc/self/status": "CapPrm:\tffffffffffffffff\nCapEff:\t0000000000004000"}))
	assert.True(t, h.mayLock())
	assert.False(t, h.capability(capSysResource))
	h = fakeHost(files{"proc/self/status": asRoot})
	assert.False(t, h.mayLock(), "nothing is known about the user namespace")
}

func TestCostsKeepTheLargest(t *testing.T) {
	assert.Equal(t, costs{5, 100}, costs{5, 0}.atLeast(costs{3, 100}))
}
