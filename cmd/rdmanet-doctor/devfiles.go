package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"syscall"
)

// devInfiniBand is where the device files are.
const devInfiniBand = "/dev/infiniband"

// checkDeviceFiles tries to open what programs open: a file for each device, and one
// for the connection manager.
func (h *host) checkDeviceFiles(only string) (checks []check) {
	for _, name := range h.list(sysUverbs) {
		owner := h.ownerOf(name)
		if h.exists(path.Join(sysDevices, owner)) && owner != "" && (only == "" || owner == only) {
			checks = append(checks, h.checkDeviceFile(name, owner, path.Join(sysUverbs, name)))
		}
	}
	if len(checks) > 0 && h.exists(sysCM) {
		checks = append(checks, h.checkDeviceFile("rdma_cm", "the connection manager", sysCM))
	}
	return checks
}

func (h *host) checkDeviceFile(name, owner, sys string) check {
	file := path.Join(devInfiniBand, name)
	t := topic{"device files", file}
	err := h.open(file)
	switch {
	case err == nil:
		return t.ok("of %s, can be opened", owner)
	case errors.Is(err, syscall.EPERM), // what the device cgroup answers
		errors.Is(err, fs.ErrNotExist) && h.container():
		return t.fail(withDevices, "of %s, is not given to this container: %v", owner, err)
	case errors.Is(err, fs.ErrNotExist):
		major, minor, _ := strings.Cut(h.read(path.Join(sys, "dev")), ":")
		return t.fail(fmt.Sprintf("mkdir -p %s && mknod -m 666 %s c %s %s", devInfiniBand, file, major, minor), "of %s, is missing", owner)
	case errors.Is(err, fs.ErrPermission):
		return t.fail("chmod a+rw "+file, "of %s, may not be opened by this user", owner)
	}
	return t.fail(h.fix(err), "of %s, cannot be opened: %v", owner, err)
}

// withDevices is how a container gets the device files.
const withDevices = "docker run --device " + devInfiniBand + " --ulimit memlock=-1 --network host IMAGE"
