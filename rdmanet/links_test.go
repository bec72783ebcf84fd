package rdmanet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// synchronous reports whether the device is done with the bytes of a Write when that returns, so that
// there is no registered memory to send from. c must be open.
func (c *Conn) synchronous(t *testing.T) bool {
	t.Helper()
	b, err := c.stream.s.TakeBuffer()
	require.NoError(t, err)
	if b != nil {
		b.Free()
	}
	return b == nil
}

// arrived waits until all that c has sent is with its peer, which is in this process.
func arrived(t *testing.T, c *Conn) {
	t.Helper()
	here := c.info()
	for _, i := range Conns() {
		if i.Local == here.Remote && i.Remote == here.Local {
			require.Eventually(t, func() bool {
				for _, i := range Conns() {
					if i.Local == here.Remote && i.Remote == here.Local {
						if i.Checksum { // what is unread is frames
							return i.MessagesReceived == c.Stats().MessagesSent
						}
						return i.BytesRead+uint64(i.Unread) == c.Stats().BytesWritten
					}
				}
				return true
			}, patience, time.Millisecond)
			return
		}
	}
}
