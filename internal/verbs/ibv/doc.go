// Package ibv is the verbs driver for real RDMA devices, hardware and the
// kernel's soft-RoCE and soft-iWARP: libibverbs and librdmacm, loaded at run time
// and never linked, without cgo.
//
// layout.go is the only place that knows structs and constants of the C headers,
// and layout_test.go compares it with them. lib.go loads the libraries on first
// use; importing the package costs nothing. What the headers do in inline
// functions (posting, polling, arming) is called through ibv_context.ops, with
// work requests built in C memory that belongs to the queue: nothing on that path
// allocates.
//
// Teardown follows rdma-core: QP, CQ, channel, MR, PD, then the id. Every event
// is acknowledged as soon as it has been copied, because destroying an object
// waits for that.
//
// The build tag noverbs leaves the driver out; a binary without it is dynamically
// linked even if cgo is off.
package ibv
