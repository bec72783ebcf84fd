// Package verbstest is the conformance suite of the verbs API: it states as tests
// what the verbs mean (states, ordering, protection, completion codes, flush,
// RNR, arming, the connection manager), knows no driver, and every driver passes it.
//
// A driver's own test calls Run with a Config. What a device cannot do is read
// from DeviceAttr.Caps and nowhere else: without a capability the suite checks
// that the request is refused with verbs.ErrNotSupported. What a device is known to do
// otherwise than the specification says is named by a Deviation, none by default.
//
// The suite assumes nothing that only a software device offers: completions
// may take time, posts are asynchronous, and memory is looked at only once the
// completion that covers it was polled. Every wait is bounded by Config.Timeout.
//
// NewPair, Address and BringUp are of use to the tests of drivers and of the
// packages above, too.
package verbstest
