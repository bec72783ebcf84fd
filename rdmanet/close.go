package rdmanet

import (
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/link"
)

// defaultDrain bounds how long a closed connection waits for its last requests to
// complete, on devices where a Write returns before its bytes have arrived.
const defaultDrain = 10 * time.Second

// errUnconfirmed is why Close fails where the peer's device, or its process, takes in nothing.
var errUnconfirmed = &link.Error{
	Errno: syscall.ETIMEDOUT,
	Err:   errors.New("what was written may not have arrived yet (it is sent on while this process runs; SetLinger has Close wait longer)"),
}

// Close closes the connection. Calls that wait return net.ErrClosed. What was
// written arrives before the peer's Reads return io.EOF; if bytes were received
// that nobody read, or SetLinger(0) was called, the connection is reset instead,
// as TCP's is. A second Close fails with net.ErrClosed.
//
// Unlike with TCP, this process itself delivers what was written, and the program may end right
// after Close. So Close waits: over a network until the peer's device has confirmed what was written, which
// takes a round trip; within a host only where so many connections come and go that the peer falls
// behind with their ends. Where the listener has left before it took the connection, Close waits until the next
// listener of the address has it. It does not wait for the peer's program unless SetLinger asks it to.
//
// If the device confirms nothing for two seconds, or for ten the peer has no room or no listener takes the
// connection, or either goes on too slowly (six such waits at most), Close fails with a timeout (ETIMEDOUT), and so,
// at once, do those behind it on the same lane; where no listener takes them, and on other lanes to the same
// listener, they wait for a tenth of a second.
// The connection is closed, and what was written is sent on in the background, for ten seconds in all.
// The Close of an accepted connection waits for a tenth of a second at most, and does not fail by that:
// a server goes on as a rule. After SetLinger with a time above 0 Close waits for that time instead,
// and does not fail when it is up.
func (c *Conn) Close() error {
	if !c.ok() {
		return syscall.EINVAL
	}
	if !c.life.close() {
		return c.opError(opClose, net.ErrClosed)
	}
	c.unguard()
	c.stream.shut(c.linger.Load() == 0)
	c.stream.dropPins(c)
	c.exit(c.life.decref())
	switch sec := c.linger.Load(); {
	case sec < 0:
		if !c.stream.s.AwaitEnd() {
			return c.opError(opClose, errUnconfirmed)
		}
	case sec > 0:
		limit := time.NewTimer(time.Duration(sec) * time.Second)
		defer limit.Stop()
		select {
		case <-c.done():
		case <-limit.C:
		}
	}
	return nil
}

// exit is called by whoever drops a reference, and destroys with the last one.
func (c *Conn) exit(last bool) {
	if !last {
		return
	}
	c.finish(c.drainLimit())
}
