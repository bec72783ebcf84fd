package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/internal/verbs/faulty"
)

// conversation is how many bytes go each way on a stream whose acquisitions fail one by one:
// enough for rings to grow.
const conversation = 60_000

// TestEveryAcquisitionFails has the first acquisition fail that a dial, an accept, a
// conversation and the end of the link take, then the second, and so on until all are
// through: on the dialer's device, and on the listener's. Nobody waits for ever, the listener
// serves the next client, and nothing is left behind.
func TestEveryAcquisitionFails(t *testing.T) {
	needFailing(t)
	armed := 0
	for _, way := range []struct {
		d     *faulty.Driver
		under string
	}{
		{failing, "soft0"},
		{failingAsynchronous, "asynchronous0"},
		{failingRemoteIWARP, "remote0-iwarp"},
	} {
		for _, at := range []string{"dialer", "listener"} {
			t.Run(way.d.Name()+"/"+at, func(t *testing.T) {
				listens := Config{CM: cm.Options{Device: way.under}}
				dials := Config{CM: cm.Options{Device: way.under}, Idle: time.Millisecond}
				if at == "dialer" {
					dials.CM.Device = way.d.Name()
				} else {
					listens.CM.Device = way.d.Name()
				}
				armed += failEach(t, way.d, listens, dials)[faulty.ReqNotify]
			})
		}
	}
	require.NotZero(t, armed, "a conversation need not arm a CQ, where what it waits for is always there")
}

// failEach returns how often each kind of acquisition has failed.
func failEach(t *testing.T, ill *faulty.Driver, listens, dials Config) map[string]int {
	before := leaktest.Take()
	l, err := Listen(listens, testAddr())
	require.NoError(t, err)
	defer l.Close()
	go serveEchoes(l)
	links, err := NewLinks(dials)
	require.NoError(t, err)
	defer links.Close()
	alive := ill.Live()
	failed := map[string]int{}
	untouched := 0
	for n := 1; ; n++ {
		count := faulty.FailNth(n)
		ill.OnAcquire(count.Ask)
		var err error
		within(t, fmt.Sprintf("a conversation whose acquisition %d fails", n), func() { err = converse(links, l) })
		nothingLeft(t, ill, alive, fmt.Sprintf("after number %d: %v", n, err))
		ill.OnAcquire(nil)
		what := count.Failed()
		if what == "" {
			require.NoError(t, err)
			break
		}
		if listens.CM.Device == ill.Name() {
			switch what { // before the dialer is answered
			case faulty.QueryDevice, faulty.AllocPD, faulty.Channel, faulty.CreateCQ, faulty.CreateQP:
				require.NoError(t, err, "number %d, %s: the dialer has to wait", n, what)
			}
		}
		if failed[what]++; err == nil {
			untouched++
		}
		require.Eventually(t, func() bool { // the next client is not to go by a link whose other end has ended
			links.mu.Lock()
			defer links.mu.Unlock()
			return len(links.links) == 0
		}, patience, time.Millisecond)
		within(t, "the next client", func() { err = converse(links, l) })
		require.NoError(t, err, "after number %d, %s", n, what)
		nothingLeft(t, ill, alive, fmt.Sprintf("after number %d, %s, and the next client", n, what))
	}
	require.NoError(t, links.Close())
	require.NoError(t, l.Close())
	require.Empty(t, before.Wait(nil))
	t.Logf("failed one by one: %v; %d times nobody noticed", failed, untouched)
	for _, what := range []string{faulty.AllocPD, faulty.AllocMemory, faulty.RegMR, faulty.Channel, faulty.CreateCQ, faulty.CreateQP, faulty.PostRecv, faulty.PostSend} {
		require.NotZero(t, failed[what], what)
	}
	return failed
}

// nothingLeft waits until as many objects of a device are left as before.
func nothingLeft(t *testing.T, d *faulty.Driver, alive, when string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) { require.Equal(c, alive, d.Live()) }, patience, time.Millisecond, when)
}

// serveEchoes says back what the clients of l say, until it is closed.
func serveEchoes(l *Listener) {
	for {
		s, err := l.Accept(context.Background())
		if err != nil {
			return
		}
		go func() {
			defer s.Close()
			_, _ = io.Copy(s, s)
		}()
	}
}

// converse is a client who says something long and hears it again.
func converse(links *Links, l *Listener) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience/2)
	defer cancel()
	c, err := links.Dial(ctx, Target{Dst: l.Addr()})
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience / 2))
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write(make([]byte, conversation))
		wrote <- errors.Join(err, c.CloseWrite())
	}()
	n, err := io.Copy(io.Discard, c)
	if err == nil && n != conversation {
		err = io.ErrUnexpectedEOF
	}
	return errors.Join(err, <-wrote)
}
