// Package verbs is the verbs API in Go: the objects of an RDMA device (Device, Context, PD, MR,
// CompChannel, CQ, QP, SRQ, AH), the requests posted to it (SendWR and RecvWR with their SGEs), the
// completions that it returns (WC), and the causes of errors.
//
// A Device comes from cm.Devices or cm.PortFor, and a connected QP from a cm.ID, or from cm.BringUp
// where there is no connection manager. Names and numbers follow rdma-core, and what the verbs mean the InfiniBand Architecture
// Specification, volume 1, chapters 9 to 11; both drivers, of real devices and of the software
// device, are tested for that by one suite. A device that lacks something says so by its
// DeviceCaps and by ErrNotSupported.
//
// Only drivers of this module implement the interfaces: a release may add methods to them.
package verbs
