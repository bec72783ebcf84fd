package link

import (
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// onNetworkIWARP is a device that is like iWARP between hosts.
func onNetworkIWARP(t *testing.T) Config {
	t.Helper()
	needFailing(t)
	return Config{CM: cm.Options{Device: "remote0-iwarp"}}
}

// Only the devices of a network are asked to confirm.
func TestWhoConfirms(t *testing.T) {
	attr := verbs.DeviceAttr{MaxQPRdAtom: 4, MaxQPInitRdAtom: 128}
	near := attr
	near.Caps = verbs.CapSameHost
	require.Nil(t, newConfirmation(verbs.TransportRoCE, &attr))
	require.Nil(t, newConfirmation(verbs.TransportIB, &attr))
	require.Nil(t, newConfirmation(verbs.TransportIWARP, &near))
	require.EqualValues(t, 4, newConfirmation(verbs.TransportIWARP, &attr).reads, "no more than the device has")
	attr.MaxQPRdAtom = 128
	require.EqualValues(t, maxReads, newConfirmation(verbs.TransportIWARP, &attr).reads)
}

// TestBoundReads: either word of the peer's bounds the READs, and none that it leaves out.
func TestBoundReads(t *testing.T) {
	p := &endpoint{}
	p.boundReads(&cm.ConnParam{ResponderResources: 1})
	require.Zero(t, p.maxReads(), "nobody confirms")
	p.confirm = &confirmation{reads: maxReads}
	for _, c := range []struct {
		says cm.ConnParam
		want uint8
	}{
		{cm.ConnParam{}, maxReads},
		{cm.ConnParam{ResponderResources: 255, InitiatorDepth: 255}, maxReads},
		{cm.ConnParam{ResponderResources: 9}, 9},
		{cm.ConnParam{InitiatorDepth: 5, ResponderResources: 8}, 5},
	} {
		p.boundReads(&c.says)
		require.Equal(t, c.want, p.maxReads(), "%+v", c.says)
	}
}

// TestPeerThatTakesFewReads: no more READs are under way than the peer's device takes, whoever has dialled.
func TestPeerThatTakesFewReads(t *testing.T) {
	for _, role := range []lane.Role{lane.RoleDialer, lane.RoleListener} {
		b := newBed(t, onNetworkIWARP(t))
		m := b.wirePair(role, wireConfig{takesReads: 2})
		require.EqualValues(t, 2, m.ours.e.p.confirm.reads)
		m = b.wirePair(role, wireConfig{})
		require.EqualValues(t, maxReads, m.ours.e.p.confirm.reads)
	}
}

// holdsReads is a QP whose READs go out only when they are let go, and nothing behind them
// before. What goes out otherwise completes as it does with TCP: whether or not the peer has it.
type holdsReads struct {
	verbs.QP

	mu   sync.Mutex
	free bool
	held []verbs.SendWR
}

func (q *holdsReads) PostSend(wrs []verbs.SendWR) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.free || wrs[0].Opcode != verbs.WRRDMARead && len(q.held) == 0 {
		return q.QP.PostSend(wrs)
	}
	for _, wr := range wrs {
		wr.Inline, wr.SGList = slices.Clone(wr.Inline), slices.Clone(wr.SGList)
		q.held = append(q.held, wr)
	}
	return len(wrs), nil
}

func (q *holdsReads) letGo() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free = true
	_, err := q.QP.PostSend(q.held)
	return err
}

// TestConfirmation: send memory is used again when the peer's device has answered a READ behind
// what was sent from it, and not before.
func TestConfirmation(t *testing.T) {
	cfg := onNetworkIWARP(t)
	b := newBed(t, cfg)
	client, server := b.pair()
	say(t, client, server)
	e := client.e
	held := &holdsReads{QP: e.p.qp}
	within(t, "what was sent before", func() {
		for busy := true; busy; {
			e.mu.Lock()
			e.reap()
			if busy = len(e.staging.entries) > 0; !busy {
				e.sq.qp = held
			}
			e.mu.Unlock()
		}
	})
	text := make([]byte, 600) // more than goes inline
	_, err := client.Write(text)
	require.NoError(t, err)
	for n := 0; n < len(text); { // it has arrived, and so the WRITE has completed
		k, err := server.Read(text)
		require.NoError(t, err)
		n += k
	}
	inUse := func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.reap()
		return len(e.staging.entries) > 0
	}
	require.True(t, inUse(), "its READ has not been answered")
	require.NoError(t, held.letGo())
	within(t, "the answer", func() {
		for inUse() {
			time.Sleep(time.Millisecond)
		}
	})
}

// TestConfirmationRefused: the peer permits no READ of its memory. Whoever writes learns that
// nothing is confirmed, and does not wait for ever.
func TestConfirmationRefused(t *testing.T) {
	cfg := onNetworkIWARP(t)
	b := newBed(t, cfg)
	client, server := b.pair()
	say(t, client, server)
	client.e.mu.Lock()
	client.e.p.confirm.rkey ^= 0x5a5a5a
	client.e.mu.Unlock()
	within(t, "a lane without confirmations", func() {
		var err error
		for err == nil {
			_, err = client.Write(make([]byte, 600))
		}
		_, err = client.Read(make([]byte, 1))
		require.Error(t, err)
		for err = nil; err == nil; { // what it had sent may still be read
			_, err = server.Read(make([]byte, 1000))
		}
	})
}

// refusesReads is a QP that has left RTS between a message and the READ that confirms it.
type refusesReads struct{ verbs.QP }

func (q refusesReads) PostSend(wrs []verbs.SendWR) (int, error) {
	if wrs[0].Opcode == verbs.WRRDMARead {
		return 0, verbs.ErrState
	}
	return q.QP.PostSend(wrs)
}

// TestSaidUnconfirmed: the peer takes a message and leaves before it can be confirmed. It was
// said all the same, and the peer gets it; the lane ends, and is kept while its stream is open, since
// the peer may be out of reach.
func TestSaidUnconfirmed(t *testing.T) {
	cfg := onNetworkIWARP(t)
	b := newBed(t, cfg)
	client, server := b.pair()
	say(t, client, server)
	client.e.mu.Lock()
	client.e.sq.qp = refusesReads{client.e.p.qp}
	client.e.mu.Unlock()
	text := make([]byte, 600)
	n, err := client.Write(text)
	require.NoError(t, err)
	require.Equal(t, len(text), n)
	within(t, "a message without a confirmation", func() {
		got := 0
		for got < len(text) {
			k, err := server.Read(make([]byte, len(text)))
			require.NoError(t, err)
			got += k
		}
		require.NoError(t, client.Close())
		<-client.e.done
	})
}

// TestReadsUnderWay: no more READs are posted than the device takes at once, however long the peer takes
// to answer. What comes after them waits, and goes out when they are answered.
func TestReadsUnderWay(t *testing.T) {
	cfg := onNetworkIWARP(t)
	cfg.FirstRing, cfg.MaxRing = 256<<10, 256<<10
	b := newBed(t, cfg)
	client, server := b.pair()
	say(t, client, server)
	e := client.e
	q := &holdsReads{QP: e.p.qp}
	e.mu.Lock()
	e.sq.qp = q
	e.mu.Unlock()
	const messages = 2 * maxReads
	text := make([]byte, 600) // more than goes inline, so each asks to be confirmed
	written := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < messages && err == nil; i++ {
			_, err = client.Write(text)
		}
		written <- err
	}()
	held := func() (reads int) {
		q.mu.Lock()
		defer q.mu.Unlock()
		for i := range q.held {
			if q.held[i].Opcode == verbs.WRRDMARead {
				reads++
			}
		}
		return reads
	}
	require.Eventually(t, func() bool { return held() == int(e.p.confirm.reads) }, patience, time.Millisecond)
	select {
	case err := <-written:
		t.Fatalf("a Write has not waited: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	require.Equal(t, int(e.p.confirm.reads), held())
	require.NoError(t, q.letGo())
	within(t, "what has waited", func() {
		_, err := io.ReadFull(server, make([]byte, messages*len(text)))
		require.NoError(t, err)
		require.NoError(t, <-written)
	})
}
