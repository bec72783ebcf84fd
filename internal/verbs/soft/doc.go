// Package soft is the software RDMA device: a driver for verbs that needs no
// hardware and reaches the processes of one host.
//
// It is a device and not a shortcut. Memory is memfd, handed over a Unix socket
// with SCM_RIGHTS; one-sided operations are executed by the initiator straight
// into its mapping of the peer's memory; what the peer must learn travels through
// a queue in shared memory, one per direction (queue.go); a sleeping peer is woken
// through the eventfd of its completion channel, and only when its shared flag
// says that it sleeps.
//
// The peer may be hostile. Every word that it can write is copied once and
// checked; indices that count are private; every wait ends at the latest when the
// peer's socket hangs up.
//
// Locks are taken in this order: qp.mu (send queue and state), cq.mu (completions
// and the consumption of inboxes), srq.mu and recvQueue.mu (posted receives).
package soft
