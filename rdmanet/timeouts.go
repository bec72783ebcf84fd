package rdmanet

import (
	"fmt"
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

	// rnrRetryCount is finite, so that a peer that lies about its receives is noticed.
	// Receivers are never without a receive work request, so these retries stay unused.
	rnrRetryCount = 6
)

// pathOptions are the checked settings of how packets travel.
type pathOptions struct {
	tos        uint8
	ackTimeout uint8 // the exponent
	retries    uint8
}

// newPathOptions applies the defaults for zeros and checks the rest.
func newPathOptions(tos uint8, ackTimeout time.Duration, retries int) (pathOptions, error) {
	if ackTimeout == 0 {
		ackTimeout = DefaultAckTimeout
	}
	if ackTimeout < 0 || ackTimeout > maxAckTimeout {
		return pathOptions{}, fmt.Errorf("AckTimeout %v is out of bounds: choose up to %v", ackTimeout, maxAckTimeout)
	}
	switch {
	case retries == 0:
		retries = DefaultRetries
	case retries < 0:
		retries = 0
	case retries > maxRetries:
		return pathOptions{}, fmt.Errorf("the count of Retries, %d, is out of bounds: choose 1 to %d, or below 0 for none", retries, maxRetries)
	}
	return pathOptions{tos, ackTimeoutPower(ackTimeout), uint8(retries)}, nil
}

// ackTimeoutPower is the smallest exponent with which a device waits for at least d.
func ackTimeoutPower(d time.Duration) uint8 {
	power := uint8(1)
	for ackTimeoutUnit<<power < d {
		power++
	}
	return power
}
