package cm

import (
	"os"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// Options are set on an ID when it is made. The zero value is right for most.
type Options struct {
	// Device names the device to use, as "mlx5_0" or "soft0". If it is "", the
	// address decides: a destination on this host is reached by the software
	// device, any other by the first driver that has a route; a listener is opened
	// on every driver that serves its address.
	Device string
	// ReuseAddr lets two listeners share an address, where the device can.
	ReuseAddr bool
	// AFOnly keeps an IPv6 wildcard from taking IPv4.
	AFOnly bool
	// TOS is the type of service, 0 for the default.
	TOS uint8
	// AckTimeout is the exponent of the QP's ACK timeout, 4.096 us x 2^t, 0 for the default.
	AckTimeout uint8
	// AnyUser makes the software device accept, or connect to, processes of any
	// user; by default only the own user's and root's. Other devices ignore it.
	AnyUser bool
	// HandshakeTimeout bounds how long a listener waits for the request of a
	// stranger that has connected; 0 is the default of five seconds.
	HandshakeTimeout time.Duration
	// MaxHalfOpen bounds the strangers that have connected but sent no request; 0
	// is the default. Past it the oldest is dropped, never the newest.
	MaxHalfOpen int
}

// DefaultDevice is the device that the environment variable RDMANET_DEVICE
// forces, "" if it forces none. It is meant for Options.Device.
func DefaultDevice() string { return os.Getenv(deviceVar) }

const deviceVar = "RDMANET_DEVICE"

func (o *Options) driver() verbs.CMOptions {
	return verbs.CMOptions{
		ReuseAddr:        o.ReuseAddr,
		AFOnly:           o.AFOnly,
		TOS:              o.TOS,
		AckTimeout:       o.AckTimeout,
		AnyUser:          o.AnyUser,
		HandshakeTimeout: o.HandshakeTimeout,
		MaxHalfOpen:      o.MaxHalfOpen,
	}
}
