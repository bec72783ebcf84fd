package rdmanet

import "github.com/rdmanet/go-rdmanet/internal/verbs"

// Timeouts and retries of a reliable connection (IBA 9.7.6.1.3). A request whose
// acknowledgement does not come is sent again after 4.096 us x 2^ackTimeout, that is
// 0.27 s, and retryCount times more, so a peer that does not answer is given up after
// 0.27 s x 8 = 2.1 s; a device may take up to four times as long for each, which is
// 8.6 s in all. librdmacm's own choice, made from the path's guessed lifetime, is
// several times as much. Shorter ones would cut connections at a link that flaps or a
// switch that pauses.
//
// Receivers are never without a receive work request, so RNR retries stay unused;
// they are finite, so that a peer that lies about it is noticed.
const (
	ackTimeout    = verbs.DefaultAckTimeout
	retryCount    = 7
	rnrRetryCount = 6
)
