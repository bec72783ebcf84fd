// Package control is how two ends of the software device speak before and beside their queues.
// A Socket carries messages and descriptors between two processes, and its hang-up is the sign that
// one has died (socket.go); an address is an abstract name of such a socket (names.go); the kernel
// says whose process is at the other end (cred.go); and the messages by which a connection is set up
// are made and checked here (messages.go). It knows no QP: the offer of one is bytes to it. Of this
// module it imports verbs, driver, wakeup for deadlines, and shm for one error that both have.
package control
