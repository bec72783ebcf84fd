//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// sysfs is where the kernel describes its RDMA devices.
const sysfs = "/sys/class/infiniband"

// device is verbs.Device. It keeps nothing of the library's: each Open looks the
// name up again.
type device struct {
	lib       *libibverbs
	name      string
	guid      uint64
	transport verbs.Transport
}

func (d *device) Name() string               { return d.name }
func (d *device) GUID() uint64               { return d.guid }
func (d *device) Transport() verbs.Transport { return d.transport }

func (d *device) Open() (verbs.Context, error) {
	var handle uintptr
	err := eachDevice(d.lib, func(dev uintptr) error {
		if goString(at[cDevice](dev).name[:]) != d.name {
			return nil
		}
		r, errno := d.lib.callErrno(d.lib.openDevice, dev)
		if r == 0 {
			return failed("ibv_open_device "+d.name, errno)
		}
		handle = r
		return nil
	})
	if err != nil {
		return nil, err
	}
	if handle == 0 {
		return nil, noDevice(d.name)
	}
	ctx, err := newContext(d.lib, d, handle, nil)
	if err != nil {
		call(d.lib.closeDevice, handle)
		return nil, err
	}
	return ctx, nil
}

func noDevice(name string) error {
	return driver.Explain(fmt.Sprintf("no card is called %q (rdma link lists what there is)", name), verbs.ErrNoDevice)
}

// eachDevice calls f for every struct ibv_device until it fails.
func eachDevice(lib *libibverbs, f func(dev uintptr) error) error {
	var n int32
	list, errno := lib.callErrno(lib.getDeviceList, uintptr(unsafe.Pointer(&n)))
	if list == 0 {
		if errno == syscall.ENOSYS {
			if err := loadedAndUnreadable(); err != nil {
				return err
			}
			return driver.Explain("there is no RDMA card, or the kernel module ib_uverbs is not loaded", verbs.ErrNoDevice, errno)
		}
		return failed("ibv_get_device_list", errno)
	}
	defer call(lib.freeDeviceList, list)
	for _, dev := range unsafe.Slice((*uintptr)(pointer(list)), n) {
		if err := f(dev); err != nil {
			return err
		}
	}
	return nil
}

// loadedAndUnreadable is why libibverbs, which takes the module ib_uverbs for missing then, cannot
// open what it shows; nil if there is nothing. A file that is not there needs a descriptor as well
// before open(2) says so, which stat(2) does not.
func loadedAndUnreadable() error {
	const shown = "/sys/class/infiniband_verbs/abi_version"
	if _, err := os.Stat(shown); err != nil {
		return nil
	}
	if _, err := os.ReadFile(shown); noDescriptors(err) {
		return failed("ibv_get_device_list", syscall.EMFILE)
	}
	return nil
}

var deviceList cache[struct{}, []*device]

func listDevices() ([]*device, error) {
	lib, err := loadVerbs()
	if err != nil {
		return nil, err
	}
	return deviceList.get(struct{}{}, func() (devices []*device, err error) {
		err = eachDevice(lib, func(dev uintptr) error {
			d, err := describe(lib, dev)
			devices = append(devices, d)
			return err
		})
		return devices, err
	})
}

// describe is the device of a struct ibv_device.
func describe(lib *libibverbs, dev uintptr) (*device, error) {
	d := at[cDevice](dev)
	name := goString(d.name[:])
	transport, err := transportOf(name, d.nodeType)
	return &device{
		lib:       lib,
		name:      name,
		guid:      bits.ReverseBytes64(uint64(call(lib.getDeviceGUID, dev))),
		transport: transport,
	}, err
}

// transportOf tells RoCE from InfiniBand by the link layer of the first port. Some
// devices are neither, nor iWARP: EFA and usNIC have transports of their own.
func transportOf(name string, nodeType int32) (verbs.Transport, error) {
	layer, err := os.ReadFile(filepath.Join(sysfs, name, "ports/1/link_layer"))
	if noDescriptors(err) {
		return verbs.TransportUnknown, err
	}
	return transport(nodeType, strings.TrimSpace(string(layer))), nil
}

func transport(nodeType int32, linkLayer string) verbs.Transport {
	switch {
	case nodeType == nodeRNIC:
		return verbs.TransportIWARP
	case nodeType != nodeCA:
		return verbs.TransportUnknown
	case linkLayer == "Ethernet":
		return verbs.TransportRoCE
	case linkLayer == "InfiniBand":
		return verbs.TransportIB
	}
	return verbs.TransportUnknown
}

// findDevice returns the device of a name.
func findDevice(name string) (*device, error) {
	list, err := listDevices()
	if err != nil {
		return nil, err
	}
	for _, d := range list {
		if d.name == name {
			return d, nil
		}
	}
	return nil, noDevice(name)
}
