package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rdmanet/go-rdmanet/rdmanet"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// withoutCM is a host whose librdmacm is missing.
func withoutCM(h host) host {
	h.drivers = []rdmanet.Driver{{Name: "soft"}, {Name: "ibv", Libraries: []verbs.Library{
		{Name: "libibverbs.so.1", Path: "/usr/lib/libibverbs.so.1.14.44.0"},
		{Name: "librdmacm.so.1", Err: &verbs.LibraryError{Library: "librdmacm.so.1", Package: "librdmacm1", Err: errors.New("no such file")}},
	}}}
	return h
}

func TestLibrariesThatAreThere(t *testing.T) {
	h := roceHost()
	assert.Equal(t, []check{
		{"libraries", "libibverbs.so.1", statusOK, "rdma-core 44.0, /usr/lib/libibverbs.so.1.14.44.0", ""},
		{"libraries", "librdmacm.so.1", statusOK, "rdma-core 44.0, /usr/lib/librdmacm.so.1.3.44.0", ""},
	}, h.checkLibraries())
}

func TestLibraryThatIsMissing(t *testing.T) {
	h := withoutCM(roceHost())
	c := h.checkLibraries()[1]
	assert.Equal(t, statusFail, c.Status)
	assert.Contains(t, c.Detail, "librdmacm.so.1 cannot be used")
	assert.Equal(t, "apt-get install ibverbs-providers librdmacm1", c.Fix)

	h = withoutCM(fakeHost(plain))
	c = h.checkLibraries()[1]
	assert.Equal(t, statusNote, c.Status, "nobody misses it without an RDMA device")
	assert.Equal(t, "apt-get install ibverbs-providers librdmacm1", c.Fix)
}

func TestProgramWithoutLibraries(t *testing.T) {
	h := roceHost()
	h.drivers[1] = rdmanet.Driver{Name: "ibv", Err: fmt.Errorf("%w: built with noverbs", verbs.ErrNotSupported)}
	c := one(t, h.checkLibraries())
	assert.Equal(t, statusNote, c.Status)
	assert.Contains(t, c.Detail, "built with noverbs")
}

func TestInstallLine(t *testing.T) {
	for release, want := range map[string]string{
		"ID=ubuntu\nID_LIKE=debian":                       "apt-get install ibverbs-providers librdmacm1",
		"ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"":    "dnf install libibverbs librdmacm",
		"ID=fedora\nHOME_URL=https://a.debian.example":    "dnf install libibverbs librdmacm",
		"ID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\"": "zypper install libibverbs librdmacm1",
		"ID=arch":    "pacman -S rdma-core",
		"ID=unknown": "apt-get install ibverbs-providers librdmacm1",
		"":           "apt-get install ibverbs-providers librdmacm1",
	} {
		h := fakeHost(files{"etc/os-release": release})
		assert.Equal(t, want, h.install(), release)
	}
}

func TestRDMACoreVersion(t *testing.T) {
	assert.Equal(t, "rdma-core 44.0", rdmaCore("/usr/lib/libibverbs.so.1.14.44.0"))
	assert.Equal(t, "rdma-core 56.1", rdmaCore("/opt/44.0/librdmacm.so.1.3.56.1"))
	assert.Equal(t, "of an unknown version", rdmaCore("/usr/lib/libibverbs.so.1"))
	assert.Equal(t, "of an unknown version", rdmaCore(""))
}
