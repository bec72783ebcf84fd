// Package rdmanet gives Go programs network connections whose bytes move by RDMA.
//
// Dial and Listen return a net.Conn and a net.Listener that take the place of
// TCP's: wrap the listener in an http.Server, hand the dialer to a client. Between
// processes of one Linux host the software device "soft0" moves the bytes, through
// shared memory and without hardware; between hosts RDMA cards do. docs/GUIDE.md
// has more for users.
//
// Each end of a connection owns a ring of registered memory, which its peer fills by
// RDMA WRITE; immediate data, the doorbell, say how much came, and credits flow back
// as the reader consumes. The connections of two processes share a few queue pairs,
// called lanes. docs/PROTOCOL.md specifies the wire, docs/ARCHITECTURE.md tells how
// it is made.
//
//   - *Conn implements net.Conn, io.ReaderFrom and io.WriterTo
//   - *Listener implements net.Listener
//   - every error of these, and of Dial and Listen, is a *net.OpError, or io.EOF; that of a zero
//     Conn or Listener is syscall.EINVAL
//
// Functions and methods may be called by several goroutines at once, except where they say otherwise.
//
// Networks are "rdma", "rdma4" (IPv4 only) and "rdma6" (IPv6 only), which are RDMA or
// an error, and "tcp", "tcp4" and "tcp6", which prefer RDMA: their listeners take
// clients of both kinds on one port number, and their dialers fall back to TCP, with a
// *net.TCPConn, where the server cannot be reached by RDMA. FallbackError tells why. The
// environment variable RDMANET_DEVICE names the device to use where Dialer and
// ListenConfig name none; RDMANET_DEVICE=none switches RDMA off.
package rdmanet
