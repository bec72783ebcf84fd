package rdmanet

import "github.com/rdmanet/go-rdmanet/cm"

// noDevice is the name of a device that switches RDMA off.
const noDevice = "none"

// deviceOr is the device to use: the one that an option names, or else the environment. A
// host whose environment switches RDMA off does without whatever a program asks for.
func deviceOr(device string) string {
	if forced := cm.DefaultDevice(); device == "" || forced == noDevice {
		return forced
	}
	return device
}

// An offError means that RDMA is switched off. It is an ErrNoDevice.
type offError string

const (
	errOffHere  offError = "RDMA is switched off (unset RDMANET_DEVICE, which is none)"
	errOffAsked offError = "RDMA is switched off (by the option Device, which is none)"
)

func (e offError) Error() string        { return string(e) }
func (e offError) Is(target error) bool { return target == ErrNoDevice }

// switchedOff returns why a program that names device, or none, is to do without RDMA.
func switchedOff(device string) error {
	switch {
	case cm.DefaultDevice() == noDevice:
		return errOffHere
	case device == noDevice:
		return errOffAsked
	}
	return nil
}
