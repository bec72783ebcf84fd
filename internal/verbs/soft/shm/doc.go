// Package shm is the lowest layer of the software device: memory that processes share, and the
// queues in it. Memory is a sealed memfd (sealed.go); that of a peer is mapped only after its seals
// and size were checked (mapped.go, remotemr.go). An Inbox and the Outbox that a peer
// has of it are the two ends of a queue (layout.go), with the fence that a sender may leave out
// (fence.go), the cache lines that are fetched ahead (prefetch.go), and the word that decides
// whether a connection stands (decision.go). Nothing here waits, takes a lock of the device, or
// knows of a QP: whoever calls sees to it that each end is used by one at a time. Of this module it
// imports verbs and driver only, for errors and flags.
package shm
