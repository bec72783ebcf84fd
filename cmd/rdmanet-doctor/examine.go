package main

import (
	"context"
	"slices"
	"strings"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// examine makes every check there is.
func examine(ctx context.Context, h host, opt options) *report {
	r := &report{Version: formatVersion, System: h.goos + "/" + h.goarch, Checks: []check{}, Devices: []device{}}
	if h.supported() {
		r.examine(ctx, &h, opt)
	} else {
		r.add(topic{name: "system"}.note("", "RDMA is not supported on %s: %s", r.System, oneLine(h.devicesErr)))
	}
	r.OK = !slices.ContainsFunc(r.Checks, failed)
	return r
}

func (r *report) examine(ctx context.Context, h *host, opt options) {
	all := h.devices
	if opt.device != "" {
		h.devices = slices.DeleteFunc(slices.Clone(all), func(d rdmanet.Device) bool { return d.Name != opt.device })
	}
	r.add(h.checkLibraries()...)
	r.add(h.checkKernel()...)
	r.add(h.checkKernelVersion()...)
	r.add(h.checkDeviceFiles(opt.device)...)
	r.add(h.checkNamespace()...)
	r.add(h.checkMemory(opt.connections)...)
	r.add(h.checkList(opt.device)...)
	var need costs
	for _, d := range h.devices {
		r.Devices = append(r.Devices, newDevice(d))
		checks := h.checkDevice(d)
		checks = append(checks, h.checkCapacity(d, opt.connections)...)
		r.add(checks...)
		r.add(h.checkClass(d)...)
		r.add(h.checkInterrupts(d)...)
		if len(d.Addrs) == 0 || slices.ContainsFunc(checks, failed) {
			continue // nothing can be sent
		}
		c, took := h.checkEcho(ctx, d)
		r.add(c)
		need = need.atLeast(took)
	}
	r.add(h.checkChosen(ctx, opt.device, all)...)
	r.add(h.checkDaemons()...)
	r.add(h.checkRPFilter()...)
	r.add(h.checkMemlock(need, opt.connections), h.checkDescriptors(need, opt.connections), h.checkThreads())
}

func (r *report) add(checks ...check) { r.Checks = append(r.Checks, checks...) }

func failed(c check) bool { return c.Status == statusFail }

// oneLine is the text of an error that may join several.
func oneLine(err error) string {
	if err == nil {
		return "the reason is not known"
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}
