// Package driver is what a driver of RDMA devices is to package cm: its devices, how it would reach
// an address, and a connection manager (CMID) for it. The devices themselves are declared by
// package verbs. Optional abilities are interfaces of their own, as ListenSharer and Loader.
//
// internal/verbs/soft is the software device in shared memory, internal/verbs/ibv the driver on
// libibverbs and librdmacm; internal/verbs/verbstest has the tests that every driver passes. The
// package also has the few functions that all drivers need, and names none of them.
package driver
