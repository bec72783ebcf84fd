package rdmanet

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring"
)

// TestHostileFlood has a peer that keeps us busy with messages without data, as
// many as it may send. Calls return in time all the same.
func TestHostileFlood(t *testing.T) {
	for _, kind := range []ring.Kind{ring.KindKeepAlive, ring.KindCredit} {
		t.Run(kind.String(), func(t *testing.T) {
			eachWireFlavour(t, func(t *testing.T, fl flavour) {
				p, victim := acceptedVictim(t, fl, wireConfig{})
				stop, flooded := make(chan struct{}), make(chan error, 1)
				go func() { flooded <- flood(p, kind, stop) }()
				received := func() uint64 { return victim.Stats().DoorbellsReceived }
				began := time.Now()
				for round := 0; round < 5 || received() <= 2*wireDepth; round++ {
					require.Less(t, time.Since(began), patience, "this is no flood")
					require.NoError(t, victim.SetReadDeadline(time.Now().Add(5*time.Millisecond)))
					inTime(t, soon, "Read", func() {
						_, err := victim.Read(make([]byte, 1))
						assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
					})
					inTime(t, soon, "Write", func() {
						_, err := victim.Write([]byte("hello"))
						assert.NoError(t, err)
					})
				}
				inTime(t, soon, "Close", func() { requireClosed(t, victim) })
				close(stop)
				require.NoError(t, <-flooded)
			})
		})
	}
}

// flood rings as often as the peer's receives allow. It never consumes a byte.
func flood(p *wirePeer, kind ring.Kind, stop chan struct{}) error {
	own := ring.Credit{Reposted: wireDepth, Size: wireRing}
	told := own.Reposted
	var wc [64]verbs.WC
	for sent := p.warmed; ; {
		select {
		case <-stop:
			return nil
		default:
		}
		n, err := p.recvCQ.Poll(wc[:])
		for i := range wc[:n] {
			if wc[i].Status != verbs.WCSuccess {
				<-stop
				return nil // the victim has closed
			}
			p.taken(&wc[i])
			_, postErr := p.qp.PostRecv([]verbs.RecvWR{p.recvWR(wc[i].WRID)})
			err = errors.Join(err, postErr)
			own.Reposted++
		}
		for range p.credited().Reposted - sent {
			wrs := []verbs.SendWR{p.bellWR(uint32(kind) << 28)}
			tell := kind == ring.KindCredit || own.Reposted-told >= wireDepth/8
			if tell {
				var block [ring.CreditLen]byte
				own.Put(block[:])
				wrs = p.creditWRs(block[:])
			}
			wrs[len(wrs)-1].Flags |= verbs.SendSignaled
			_, postErr := p.qp.PostSend(wrs)
			_, pollErr := p.sendCQ.Poll(wc[:])
			if errors.Is(postErr, verbs.ErrQueueFull) { // completions are late
				err = errors.Join(err, pollErr)
				break // a block without its bell is written again
			}
			err = errors.Join(err, postErr, pollErr)
			if tell {
				told = own.Reposted
			}
			sent++
		}
		if err != nil {
			return err
		}
	}
}

// endlessCQ is what a peer with a faster processor than ours makes of our CQ.
type endlessCQ struct {
	verbs.CQ
	wc verbs.WC
}

func (q *endlessCQ) Poll(wc []verbs.WC) (int, error) {
	for i := range wc {
		wc[i] = q.wc
	}
	return len(wc), nil
}

// endlessQP takes receives without end.
type endlessQP struct{ verbs.QP }

func (endlessQP) PostRecv(wrs []verbs.RecvWR) (int, error) { return len(wrs), nil }

// TestHostileEndless has completions that never end: no call is caught in them.
func TestHostileEndless(t *testing.T) {
	client, _ := pair(t)
	cq, qp := client.ep.recvCQ, client.ep.qp
	client.recv.mu.Lock()
	imm := ring.Doorbell{Kind: ring.KindKeepAlive}.Imm()
	endless := &endlessCQ{CQ: cq, wc: verbs.WC{Opcode: verbs.WCRecvRDMAWithImm, Flags: verbs.WCWithImm, ImmData: imm, QPN: qp.QPN()}}
	if !client.ep.writeImm { // the doorbell is what a receive has taken
		binary.BigEndian.PutUint32(client.ep.sends.memory.Bytes(), imm)
		endless.wc = verbs.WC{Opcode: verbs.WCRecv, ByteLen: doorbellLen, QPN: qp.QPN()}
	}
	client.ep.recvCQ = endless
	client.ep.qp = endlessQP{qp}
	client.recv.mu.Unlock()
	for name, f := range map[string]func() error{
		"Read":  func() error { _, err := client.Read(make([]byte, 1)); return err },
		"Peek":  func() error { _, err := client.Peek(1); return err },
		"Write": func() error { _, err := client.Write(make([]byte, 2*MaxReadBuffer)); return err },
	} {
		require.NoError(t, client.SetDeadline(time.Now().Add(20*time.Millisecond)))
		within(t, patience, name, func() {
			assert.ErrorIs(t, f(), os.ErrDeadlineExceeded, name)
		})
	}
	done := make(chan struct{})
	go func() { defer close(done); _, _ = client.Read(make([]byte, 1)) }()
	require.NoError(t, client.SetDeadline(time.Time{}))
	within(t, patience, "SetDeadline and Close", func() {
		assert.NoError(t, client.SetDeadline(time.Now().Add(time.Hour)))
		client.recv.mu.Lock()
		client.ep.recvCQ, client.ep.qp = cq, qp
		client.recv.mu.Unlock()
		assert.NoError(t, client.Close())
		<-done
	})
}
