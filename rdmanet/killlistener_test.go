//go:build linux

package rdmanet

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTwoProcessKillListener kills a listener with connections that nobody has
// accepted, and dialers that wait for a place among them. All of their calls fail,
// and the next listener has the address at once.
func TestTwoProcessKillListener(t *testing.T) {
	const backlog, dialers = 2, 6
	twoProcessFlavours(t, func(t *testing.T, fl flavour) {
		r := startRemote(t)
		at := addrOf(call[string](r, "Listen", RemoteListen{Flavour: fl.name, Backlog: backlog})).(*net.TCPAddr)
		results := make(chan dialled, dialers)
		for range dialers {
			go func() { results <- <-fl.dialBehind(at.AddrPort()) }()
		}
		ends := make(chan callEnd)
		calls := 0
		await := func(what string, call func() error) {
			calls++
			go func() {
				err := call()
				ends <- callEnd{what, err, time.Now()}
			}()
		}
		for range backlog {
			d := <-results
			require.NoError(t, d.err)
			closeLater(t, d.conn)
			await("Read", func() error {
				_, err := d.conn.Read(make([]byte, 1))
				return err
			})
			await("Write", func() error {
				_, err := d.conn.Write(make([]byte, 8<<20)) // more than the largest ring
				return err
			})
		}
		for range dialers - backlog {
			await("Dial", func() error { return (<-results).err })
		}
		require.Eventually(t, func() bool {
			waiting := 0
			for _, s := range Lanes() {
				if !s.Accepted && s.Remote == at.AddrPort() {
					waiting += s.Waiting
				}
			}
			return waiting == dialers-backlog && call[ListenerStats](r, "Listening", 0).Pending == backlog
		}, patience, time.Millisecond, "the backlog is not full, or nobody waits")
		stood := watchStalls()
		defer stood.stop()
		death := r.kill()
		for range calls {
			select {
			case end := <-ends:
				require.NoError(t, isDeath(end), "%s", end.what)
				promise(t, end.what, end.at.Sub(death)-stood.total(), goneWithin())
			case <-time.After(patience):
				t.Fatal("a call waits for a listener that is dead")
			}
		}
		r.end()
		l, err := fl.listen.listen(context.Background(), "rdma", at.String())
		require.NoError(t, err)
		defer l.Close()
		requireServedAmong(t, fl, l)
	})
}
