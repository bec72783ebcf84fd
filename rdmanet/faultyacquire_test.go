package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/internal/verbs/faulty"
)

// conversation is how many bytes go each way on a connection whose acquisitions fail one
// by one: enough for a ring to grow, and for memory to send from.
const conversation = 60_000

// TestEveryAcquisitionFails has the first acquisition fail that a dial, an accept, a
// conversation and the closing of both ends take, then the second, and so on until all are
// through: on the dialer's device, and on the listener's. What fails says so by its error,
// but for what the listener lacks before it has answered: then the client waits. Then
// the listener serves the next client, and nothing is left behind.
func TestEveryAcquisitionFails(t *testing.T) {
	onSoftware(t)
	defer func(d time.Duration) { keptIdle = d }(keptIdle)
	keptIdle = time.Millisecond
	for _, way := range []struct {
		d     *faulty.Driver
		under string
	}{
		{failing0, "soft0"},
		{failingAsynchronous, asynchronous.Name()},
		{failingIWARP, "soft0-iwarp"},
		{failingAsynchronousIWARP, asynchronousIWARP.Name()},
	} {
		for _, at := range []string{"dialer", "listener"} {
			t.Run(way.d.Name()+"/"+at, func(t *testing.T) {
				lc := ListenConfig{Device: way.under, HandshakeTimeout: 2 * time.Second}
				d := Dialer{Device: way.under, Timeout: patience, TOS: 1} // which has links of its own
				if at == "dialer" {
					d.Device = way.d.Name()
				} else {
					lc.Device = way.d.Name()
				}
				failEach(t, way.d, &d, &lc)
			})
		}
	}
}

func failEach(t *testing.T, ill *faulty.Driver, d *Dialer, lc *ListenConfig) {
	requireNothingLives(t, ill) // of tests before
	before := leaktest.Take()
	l, err := lc.listen(t.Context(), "rdma", loopbackAddr)
	require.NoError(t, err)
	defer l.Close()
	alive := ill.Live()
	failed := map[string]int{}
	untouched := 0
	for n := 1; ; n++ {
		count := faulty.FailNth(n)
		ill.OnAcquire(count.Ask)
		var err error
		within(t, lasting, fmt.Sprintf("acquisition %d", n), func() { err = echoOnce(d, l) })
		ill.OnAcquire(nil)
		what := count.Failed()
		if what == "" {
			require.NoError(t, err)
			break
		}
		failed[what]++
		if lc.Device == ill.Name() {
			switch what { // before the client is answered
			case faulty.QueryDevice, faulty.AllocPD, faulty.Channel, faulty.CreateCQ, faulty.CreateQP, faulty.Accept:
				require.NoError(t, err, "number %d, %s: the client has to wait", n, what)
			}
		}
		if err == nil {
			untouched++
		} else {
			var op *net.OpError
			require.ErrorAs(t, err, &op, "number %d, %s", n, what)
		}
		released := func() {
			t.Helper()
			require.Eventually(t, func() bool {
				if l.Stats().Pending > 0 { // it came after the next client, and has ended
					if s, err := l.AcceptConn(); err == nil {
						_ = s.Close()
					}
				}
				return ill.Live() == alive && MemoryInUse() == 0 && len(Conns()) == 0
			}, patience, time.Millisecond, "after number %d, %s, failed: %v", n, what, err)
		}
		released() // else the next client shares the fate of a link that is about to end
		within(t, lasting, "the next client", func() { serveOne(t, l, d) })
		released()
	}
	require.NoError(t, l.Close())
	require.Empty(t, before.Wait(nil))
	requireNothingLives(t, ill)
	t.Logf("failed one by one: %v; %d times nobody noticed", failed, untouched)
	for _, what := range []string{faulty.AllocPD, faulty.AllocMemory, faulty.RegMR, faulty.Channel, faulty.CreateCQ, faulty.CreateQP, faulty.PostRecv, faulty.PostSend} {
		require.NotZero(t, failed[what], what)
	}
}

// acceptServed is AcceptConn as http.Server calls Accept: what is temporary ends nothing.
func acceptServed(l *Listener) (*Conn, error) {
	for {
		c, err := l.AcceptConn()
		var deadline bool
		if err != nil {
			deadline = err.(net.Error).Timeout()
		}
		if deadline || !temporary(err) {
			return c, err
		}
	}
}

// temporary is the question that http.Server asks of an error.
func temporary(err error) bool {
	ne, ok := err.(interface{ Temporary() bool })
	return ok && ne.Temporary()
}

// echoOnce has a client say something long to a server, which says it back, and both
// close. It returns the client's error and the server's.
func echoOnce(d *Dialer, l *Listener) error {
	served := begun(func() error {
		s, err := acceptServed(l)
		if err != nil {
			return err
		}
		defer func() { _ = s.Close(); <-s.done() }()
		_, err = io.Copy(s, s)
		return err
	})
	err := said(d, l)
	_ = l.SetDeadline(time.Unix(1, 0)) // who has not come by now comes no more
	other := <-served
	_ = l.SetDeadline(time.Time{})
	return errors.Join(err, other)
}

// said is the client's part.
func said(d *Dialer, l *Listener) error {
	c, err := d.dial(context.Background(), "rdma", l.Addr().String())
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(); <-c.done() }()
	wrote := begun(func() error { return pour(c, conversation, 1) })
	if err := sip(c, conversation, 2); err != nil {
		return err
	}
	if err := <-wrote; err != nil {
		return err
	}
	if err := c.CloseWrite(); err != nil {
		return err
	}
	if err := readToEnd(c); err != io.EOF {
		return err
	}
	return nil
}
