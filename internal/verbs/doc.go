// Package verbs is the verbs API in Go: the objects of an RDMA device (Device,
// Context, PD, MR, CompChannel, CQ, QP, SRQ, AH), the requests posted to it
// (SendWR, RecvWR with their SGEs), the completions it returns (WC), and the
// connection manager that a driver brings along (CMID).
//
// The package declares; drivers implement. internal/verbs/soft is the software
// device in shared memory; a driver on libibverbs and librdmacm has the same
// shape. What the verbs mean is stated as tests in internal/verbs/verbstest, and
// every driver passes them. Names follow rdma-core and the InfiniBand
// Architecture Specification, volume 1, chapters 9 to 11.
//
// Nothing above this package names a driver; nothing below it imports anything
// above it.
package verbs
