package rdmanet

import "net"

// maxWrapped bounds the connections inside each other that IsRDMA looks through.
const maxWrapped = 64

// IsRDMA reports whether conn moves its bytes by RDMA: whether it is a *Conn, or one is
// inside it, as in a *tls.Conn and in any other connection with the method NetConn() net.Conn.
// A nil conn does not. The software device counts as RDMA: Conn.Device tells which device it is.
func IsRDMA(conn net.Conn) bool {
	for range maxWrapped { // who returns itself goes on for ever
		if c, ok := conn.(*Conn); ok {
			return c.ok()
		}
		w, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return false
		}
		conn = w.NetConn()
	}
	return false
}
