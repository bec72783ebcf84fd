// Package soft is the software RDMA device: a driver for verbs that needs no hardware and reaches
// the processes of one host.
//
// It is a device and not a shortcut. Protection domains, keys, access rights, receive queues, RNR,
// completion channels, flushes and asynchronous events are there, and the conformance suite of
// verbstest checks them.
//
// The device has layers of its own, which import downward only:
//
//	soft          this package: contexts, QPs, CQs, MRs, and the ids of the connection manager
//	soft/control  sockets, names, and the messages by which a connection is set up
//	soft/shm      memory that processes share, and the queues in it
//
// # Memory
//
// Memory that may be registered for remote access is a sealed memfd. A peer that is told the rkey
// gets the descriptor over a Unix socket (SCM_RIGHTS), checks seals and size, and maps it. The
// initiator executes one-sided operations itself, straight into its mapping of the peer's memory.
// Before an MR is deregistered each peer that has it lets go of its mapping. Close gives one ten seconds
// and then cuts it off; ClosePatiently waits until it does, or the connection has ended.
//
// A memory window (mw.go) narrows an MR for the peer's device, since whoever executes a request
// checks the window's range and its QP. A process that would rather not check has the descriptor of
// the whole memory, as it has with an MR of a part of it. So give a peer that you do not trust
// memory of its own.
//
// # Inbox
//
// What the receiver must learn goes through its inbox, a queue with one producer and one consumer
// that the receiver makes (shm/layout.go). An entry shows by a lap number in its own first word that it is
// new, so a message costs the transfer of one cache line beside its data. The entries have memory
// from the beginning, and whoever maps those of a peer has the kernel make sure of that: to touch
// memory that is not there would be SIGBUS.
//
// # Waking
//
// A sleeping receiver is woken only if its armed word says that it sleeps. One in another process is
// woken through the eventfd of its completion channel, which is in Go's network poller; one in the
// same process without the kernel: its deadline is set to one that has passed, of which the poller
// tells the scheduler at once. Whether a peer is in the same process is the kernel's word
// (SO_PEERCRED), not the peer's. The eventfd is never read: the poller is edge-triggered, each write
// is an edge, and a read could block a thread if a hostile peer cleared O_NONBLOCK on the shared file
// description. So could a write, and those are watched (doorbell.go).
//
// With one processor, goroutines that wake each other so would never leave the scheduler without
// something to run, and only then does it ask the kernel what has happened. So of 256 wake-ups 8 in
// a row take a pause in the network poller (pause.go, TestOneProcessorPauses).
//
// To publish an entry and then see whether the receiver sleeps takes a full fence. It waits until the
// lines of the message have come over, and would be half the price of a small message. So a receiver
// that took 64 entries without arming its CQ says in its armed word that it is hot. Its sender then
// needs no fence; the receiver, before it sleeps, has every processor of a sender execute one
// (membarrier(2), shm/fence.go). Linux may miss one of another process, so the receiver of such a sender
// looks once more a millisecond later (cq.lookAgain). A receiver that sleeps between messages never gets
// there. The lines that the next messages go to are fetched ahead (shm/prefetch.go).
//
// # Connections
//
// The Unix socket over which two ends met stays open. Descriptors travel over it, and its hang-up
// tells at once that a peer has died. One goroutine for each connection of a QP waits for it
// (link.go). There are few of these, since a lane carries the connections of a pair of processes, and
// nothing of one is kept for the next.
//
// Whether a connection stands is decided by one word in the listener's inbox (shm/decision.go): the
// dialer takes it from open to confirmed, or the listener from open to withdrawn.
//
// Several listeners of one user share an address by sharing one listening socket (cmshare.go).
//
// # UC and UD
//
// A UC QP (qp_unreliable.go) shares all of this with RC, and drops what RC would fail for. A UD QP
// (datagram.go) has no inbox. A datagram is a message of a Unix socket between two contexts, found by
// the number of the destination, and the receiver's goroutine copies it to a posted receive behind a
// header that it makes itself of the two addresses. So a flood costs its receiver a bounded number of
// sockets and no memory, and whoever is hung up on for lack of a place connects again with the next
// datagram. Only processes of one user hear each other, as everywhere on this device.
//
// # Hostile peers, locks
//
// The peer may be hostile. Every word that it can write is copied once and checked; indices that
// count are private; every wait ends at the latest when the peer's socket hangs up.
//
// Locks are taken in this order: qp.mu (send queue and state), cq.mu (completions and the
// consumption of inboxes), srq.mu and recvQueue.mu (posted receives). A WRITE of much inline data
// copies without qp.mu, if it makes no completion (qp_apart.go).
package soft
