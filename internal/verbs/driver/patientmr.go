package driver

// A PatientMR is an MR of a device that has to ask peers to let go of the memory. Its Close ends the
// connection with one that does not answer within seconds, though its process may only be stopped.
type PatientMR interface {
	// ClosePatiently is Close that ends no connection: it returns when each peer has let go, or its connection
	// has ended, as it does with the QP. It may take for ever, and the QP may be closed meanwhile.
	ClosePatiently() error
}
