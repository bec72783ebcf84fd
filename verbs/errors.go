package verbs

import (
	"errors"
	"fmt"
)

// Causes that callers branch on with errors.Is. Drivers wrap them with detail.
var (
	// ErrNotSupported means that the device or driver does not offer what was asked.
	ErrNotSupported = errors.New("not supported by this RDMA device")

	// ErrTCPPorts means that the ports of the device are those of the system's TCP, as iWARP's
	// are, and that the address is one for sockets of TCP. It is an ErrNotSupported.
	ErrTCPPorts = fmt.Errorf("%w: iWARP has its ports from the system's TCP, so it is left out of networks of TCP: use network rdma and a port of its own", ErrNotSupported)

	// ErrNoDevice means that no RDMA device of the given name or kind is present.
	ErrNoDevice = errors.New("no such RDMA device")

	// ErrNoRoute means that the driver has no device from which the address can be reached.
	ErrNoRoute = errors.New("no RDMA route to address")

	// ErrInvalid means that an argument is outside what the verb allows (EINVAL in rdma-core).
	ErrInvalid = errors.New("invalid argument")

	// ErrState means that the object's state forbids the call, as posting a send to a QP in INIT.
	ErrState = errors.New("invalid state for this verb")

	// ErrQueueFull means that a work queue holds as many requests as its capacity
	// (ENOMEM from ibv_post_send and ibv_post_recv).
	ErrQueueFull = errors.New("work queue full")

	// ErrNoMemory means that memory, or the permission to lock it, ran out.
	ErrNoMemory = errors.New("cannot allocate RDMA memory")

	// ErrBusy means that the object is still used by others, as a PD with MRs or a CQ with QPs.
	ErrBusy = errors.New("object still in use")

	// ErrClosed means that the object was destroyed before or during the call.
	ErrClosed = errors.New("use of destroyed RDMA object")

	// ErrCQOverrun means that completions were lost because the CQ was full. The CQ is dead.
	ErrCQOverrun = errors.New("completion queue overrun")

	// ErrPeerGone means that the remote end of a connection vanished without an
	// orderly disconnect: its process died, its device was removed, or its host or the
	// way there does not answer.
	ErrPeerGone = errors.New("RDMA peer is gone")

	// ErrTryAgain means that a listener had no place for the connection, or took its answer
	// back before the dialer had confirmed it, or that the dial had no turn behind others of
	// this process. Nothing was delivered: dial again.
	ErrTryAgain = errors.New("the listener has no place for the connection now")

	// ErrProtocol means that the peer broke the protocol of the device or of the
	// connection manager. The connection is closed; others are not touched.
	ErrProtocol = errors.New("RDMA peer broke the protocol")

	// ErrVersion means that two ends have no version of a protocol in common: of the device's
	// own, or of the one that they speak over it. One of the two has to be updated.
	ErrVersion = errors.New("no common protocol version")
)
