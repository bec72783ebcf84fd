package cm

import (
	"os"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
)

// Options are set on an ID when it is made. The zero value is right for most.
type Options struct {
	// Device names the device to use, as "mlx5_0" or "soft0". If it is "", the
	// address decides: a destination on this host is reached by the software
	// device, any other by the first driver that has a route; a listener is opened
	// on every driver that serves its address.
	Device string
	// ReuseAddr lets IDs that have it bind to one address, as SO_REUSEADDR does: to
	// connect from, for who listens must be alone there, and Listen fails with
	// EADDRINUSE otherwise. The software device has no such sharing; its BindAddr fails
	// with EADDRINUSE as it does without the option.
	ReuseAddr bool
	// ReusePort lets IDs that have it listen on one address of the software device at
	// the same time, in any processes of one user: they take requests from one queue,
	// which stays while one of them does. On other devices only the first listens.
	ReusePort bool
	// AFOnly keeps an IPv6 wildcard from taking IPv4.
	AFOnly bool
	// ApartFromTCP leaves devices out whose ports are those of the system's TCP, as iWARP's
	// are, for an address that a socket of TCP has as well. BindAddr leaves out every driver
	// that has such a device if the address is a wildcard. LeftOut says which.
	ApartFromTCP bool
	// TOS is the type of service, 0 for the default. It becomes the traffic class of
	// the QP; accepted IDs have their listener's or, if that has none, the dialer's.
	TOS uint8
	// AckTimeout is the exponent of the QP's ACK timeout, 4.096 us x 2^t, 0 for the
	// default; accepted IDs have their listener's. The default is verbs.DefaultAckTimeout on
	// the software device and librdmacm's guess, from the path, elsewhere; so it is
	// with kernels before 5.1, which do not let it be chosen.
	AckTimeout uint8
	// AskToConfirm has an ID with a QP tell ConnectResponse, too: Accept confirms, and
	// Established follows. Until then the peer has no connection, and Close takes the
	// request back. On the software device and on iWARP, which have no such message,
	// Established comes at once.
	AskToConfirm bool
	// AnyUser makes the software device accept, or connect to, processes of any user; by
	// default only those of the same user and of root are allowed. Other devices ignore it.
	AnyUser bool
	// HandshakeTimeout bounds how long a listener waits for the request of a
	// client that has connected, and for the confirmation of one that was answered; 0
	// is the default of five seconds. Time in which the process did not run does not
	// count, nor does what the client has sent and nobody has read yet.
	HandshakeTimeout time.Duration
	// MaxHalfOpen bounds the clients that have connected but sent no request; 0
	// means 1,024. Past it the oldest that is silent is dropped, never the newest.
	MaxHalfOpen int
	// OnEvict, if it is not nil, is called for each client that is dropped so. It must
	// not block.
	OnEvict func()
}

// DefaultDevice is the device that the environment variable RDMANET_DEVICE
// forces, "" if it forces none. It is meant for Options.Device.
func DefaultDevice() string { return os.Getenv(deviceVar) }

const deviceVar = "RDMANET_DEVICE"

func (o *Options) driver() driver.CMOptions {
	return driver.CMOptions{
		ReuseAddr:        o.ReuseAddr,
		ReusePort:        o.ReusePort,
		AFOnly:           o.AFOnly,
		ApartFromTCP:     o.ApartFromTCP,
		TOS:              o.TOS,
		AckTimeout:       o.AckTimeout,
		AskToConfirm:     o.AskToConfirm,
		AnyUser:          o.AnyUser,
		HandshakeTimeout: o.HandshakeTimeout,
		MaxHalfOpen:      o.MaxHalfOpen,
		OnEvict:          o.OnEvict,
	}
}
