package driver

// An MRAsker is a QP of a device that has to ask the peer for an MR before it can write to it. A
// request to one that it does not know waits for the answer, and with it all behind it.
type MRAsker interface {
	// AskMR asks for the MR of rkey while requests go on. It reports whether got will be called, once,
	// unless the connection ends before: with true when the device knows the MR, with false when it
	// was not given it, where a request waits for it as before, and finds out what is wrong with it.
	// got is not called if the device knows the MR already, or cannot ask. It may be called on any
	// goroutine, must not block and must not use the QP.
	AskMR(rkey uint32, got func(known bool)) (asked bool)
}
