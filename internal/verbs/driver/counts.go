package driver

// QPStats count what a driver did for a QP beyond the verbs.
type QPStats struct {
	WakeupsSent       uint64 // times the peer slept and was woken
	WakeupsSuppressed uint64 // completions given to a peer that was awake
	RNRNaks           uint64 // times the peer had no receive posted
	MissedMRs         uint64 // times there was no descriptor or no room for an MR of the peer
}

// A QPStatter is a QP whose driver counts. Drivers of hardware need not.
type QPStatter interface {
	QPStats() QPStats
	// WakeupsSent is that of QPStats, for who asks in each wait: it takes no lock.
	WakeupsSent() uint64
}

// An ObjectCounter is a Context whose driver knows how many objects there are of it: PDs,
// which count as long as they have MRs or QPs, CQs and channels. Of a device of the
// kernel the kernel knows.
type ObjectCounter interface {
	Objects() int
}
