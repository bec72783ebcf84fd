package rdmanet

import (
	"time"
)

// Timeouts and retries of a reliable connection (IBA 9.7.6.1.3). A request whose
// acknowledgement does not come within the ACK timeout is sent again, Retries times, and
// then the peer is given up: 0.27 s x (7 + 1) = 2.1 s by default. A device may take up to
// four times as long for each, which is 8.6 s. librdmacm's own choice, made from the
// path's guessed lifetime, is several times as much. Shorter ones would cut connections
// at a link that flaps or a switch that pauses.
const (
	// DefaultAckTimeout is how long a device waits for an acknowledgement unless
	// Dialer.AckTimeout or ListenConfig.AckTimeout says otherwise: 268 ms, which is
	// 4.096 us x 2^16.
	DefaultAckTimeout = ackTimeoutUnit << 16

	// DefaultRetries is how often a request is sent again unless Dialer.Retries says
	// otherwise, and the most that there is: the field has three bits.
	DefaultRetries = maxRetries
)

const (
	// ackTimeoutUnit times a power of two is what a device can wait. The exponent has
	// five bits, of which 0 means for ever.
	ackTimeoutUnit     = 4096 * time.Nanosecond
	maxAckTimeoutPower = 31
	maxAckTimeout      = ackTimeoutUnit << maxAckTimeoutPower

	maxRetries = 7
)

// pathOptions are the checked settings of how packets travel.
type pathOptions struct {
	tos        uint8
	ackTimeout uint8 // the exponent
	retries    uint8
}

// pathOptions are the settings of a dialer.
func (d *Dialer) pathOptions() (p pathOptions, err error) {
	switch {
	case d.Retries == 0:
		p.retries = DefaultRetries
	case d.Retries > maxRetries:
		return p, retriesError(optionsOfDialer, d.Retries, "or below 0 for none")
	default:
		p.retries = uint8(max(d.Retries, 0))
	}
	p.tos = d.TOS
	p.ackTimeout, err = checkAckTimeout(optionsOfDialer, d.AckTimeout)
	return p, err
}

// pathOptions are the settings of a listener; no retries stand for the dialer's.
func (lc *ListenConfig) pathOptions() (p pathOptions, err error) {
	if lc.Retries < 0 || lc.Retries > maxRetries {
		return p, retriesError(optionsOfListen, lc.Retries, "or 0 for the dialer's")
	}
	p.tos, p.retries = lc.TOS, uint8(lc.Retries)
	p.ackTimeout, err = checkAckTimeout(optionsOfListen, lc.AckTimeout)
	return p, err
}

func retriesError(owner string, n int, or string) error {
	return invalid("%s.Retries %d is out of bounds: choose 1 to %d, %s", owner, n, maxRetries, or)
}

// checkAckTimeout is the exponent of a timeout that was set, or of the default.
func checkAckTimeout(owner string, d time.Duration) (uint8, error) {
	if d == 0 {
		d = DefaultAckTimeout
	}
	if d < 0 || d > maxAckTimeout {
		return 0, invalid("%s.AckTimeout %v is out of bounds: choose up to %v", owner, d, maxAckTimeout)
	}
	return ackTimeoutPower(d), nil
}

// ackTimeoutPower is the smallest exponent with which a device waits for at least d.
func ackTimeoutPower(d time.Duration) uint8 {
	power := uint8(1)
	for ackTimeoutUnit<<power < d {
		power++
	}
	return power
}
