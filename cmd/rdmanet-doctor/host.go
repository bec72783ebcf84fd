package main

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"runtime"
	"strings"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/rdmanet"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// host is what the checks look at. Tests make up hosts of their own.
type host struct {
	goos, goarch string
	files        fs.FS  // the whole file system; names have no slash in front
	chosen       string // the device that RDMANET_DEVICE forces
	maxProcs     int    // that Go uses
	self         string // the command that starts this program

	drivers    []rdmanet.Driver
	devices    []rdmanet.Device
	devicesErr error

	// open tries to open a device file for reading and writing.
	open func(path string) error
	// free is how many bytes are free in the file system of a directory.
	free func(dir string) (int64, error)
	// memory takes, maps and gives back a little memory as the software device does.
	memory func() error
	// echo sends data through a device and takes it back.
	echo func(ctx context.Context, device string, at netip.Addr) (outcome, error)
}

// thisHost is the real one.
func thisHost() host {
	h := host{
		goos: runtime.GOOS, goarch: runtime.GOARCH,
		files: os.DirFS("/"), chosen: cm.DefaultDevice(), maxProcs: runtime.GOMAXPROCS(0),
		self:    selfCommand(os.Executable()),
		drivers: rdmanet.Drivers(),
		open:    openFile, free: freeSpace, memory: shareMemory, echo: echo,
	}
	h.devices, h.devicesErr = rdmanet.Devices()
	return h
}

// selfCommand is what starts the program again. What go run has built may be gone by then.
func selfCommand(executable string, err error) string {
	if err != nil || strings.Contains(executable, "go-build") {
		return "go run ./cmd/rdmanet-doctor"
	}
	return executable
}

func openFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// shareMemory has the software device make memory that can be shared: a sealed
// memfd, backed and mapped.
func shareMemory() (err error) {
	devices, err := cm.Devices()
	for _, d := range devices {
		if d.Transport() != verbs.TransportSoftware {
			continue
		}
		ctx, err := d.Open()
		if err != nil {
			return err
		}
		memory, err := ctx.AllocMemory(rdmanet.DefaultReadBuffer, rdmanet.DefaultReadBuffer)
		if err == nil {
			err = memory.Close()
		}
		return errors.Join(err, ctx.Close())
	}
	return err
}

// supported reports whether any driver serves this system.
func (h *host) supported() bool {
	for _, d := range h.drivers {
		if !errors.Is(d.Err, verbs.ErrNotSupported) {
			return true
		}
	}
	return false
}

// exists reports whether there is a file or directory of this name.
func (h *host) exists(name string) bool {
	_, err := fs.Stat(h.files, name)
	return err == nil
}

// read returns what a small file says, without white space around it, or "".
func (h *host) read(name string) string {
	b, err := fs.ReadFile(h.files, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// list returns the names in a directory, none if there is no such directory.
func (h *host) list(dir string) []string {
	entries, err := fs.ReadDir(h.files, dir)
	if err != nil {
		return nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// container reports whether this looks like the inside of a container.
func (h *host) container() bool {
	return h.exists(".dockerenv") || h.exists("run/.containerenv") || h.exists("run/secrets/kubernetes.io")
}
