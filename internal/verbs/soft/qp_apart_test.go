//go:build linux && (amd64 || arm64)

package soft

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// duringCopy calls f, with the lock held, while a post of a copies to b without it; f gives the lock up.
// It returns when the post has returned.
func duringCopy(t *testing.T, a, b *side, f func()) {
	t.Helper()
	q := a.qp
	put := func(p []byte, flags verbs.SendFlags) error {
		_, err := q.PostSend([]verbs.SendWR{{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline | flags, Inline: p,
			RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}})
		return err
	}
	big := bytes.Repeat([]byte{7}, 1<<20)
	// On busy processors a copy is seen only when both goroutines run at once.
	for began := time.Now(); time.Since(began) < time.Minute; {
		require.NoError(t, put(big[:1], verbs.SendSignaled)) // which asks for the MR and frees the slots
		require.Equal(t, verbs.WCSuccess, a.next().Status)
		returned := make(chan error, 1)
		go func() { returned <- put(big, 0) }()
		for over := false; !over; {
			q.mu.Lock()
			if q.peer.writing > 0 {
				f()
				require.NoError(t, <-returned)
				return
			}
			q.mu.Unlock()
			select {
			case err := <-returned:
				require.NoError(t, err)
				over = true
			default:
			}
		}
	}
	t.Fatal("no post was seen that copies without the lock")
}

// TestWriteApart: while a post copies without the lock of its QP, others go on, what is dropped stays
// mapped, and who tells the peer that nothing is written any more waits.
func TestWriteApart(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	t.Run("Posts", func(t *testing.T) {
		a, b := newConnected(t, defaults())
		duringCopy(t, a, b, func() {
			err := a.qp.post(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline | verbs.SendSignaled,
				Inline: []byte{8}, RemoteAddr: b.mr.Addr() + 1<<20 - 1, RKey: b.mr.RKey(), WRID: 5})
			alone := a.qp.peer.writing > 0
			a.qp.unlock()
			require.NoError(t, err)
			require.True(t, alone)
		})
		require.EqualValues(t, 5, a.next().WRID)
		require.Equal(t, bytes.Repeat([]byte{7}, 1<<20-1), b.mem.Bytes()[:1<<20-1])
	})
	t.Run("Drops", func(t *testing.T) {
		a, b := newConnected(t, defaults())
		p := a.qp.peer
		duringCopy(t, a, b, func() {
			p.drop(b.mr.RKey())
			dropped := len(p.dropped)
			a.qp.mu.Unlock()
			require.Equal(t, 1, dropped)
		})
		require.Empty(t, p.dropped)
		require.Equal(t, bytes.Repeat([]byte{7}, 1<<20), b.mem.Bytes())
	})
	for name, f := range map[string]func(a, b *side){
		"Deregistration": func(a, b *side) { require.NoError(t, b.mr.Close()) },
		"Disconnect":     func(a, b *side) { a.qp.disconnect() },
		"HangUp":         func(a, b *side) { b.qp.disconnect(); <-a.gone },
		"Close":          func(a, b *side) { require.NoError(t, a.qp.Close()) },
		"Error": func(a, b *side) {
			require.NoError(t, a.qp.Modify(&verbs.QPAttr{State: verbs.QPErr}, verbs.QPMaskState))
		},
		"Reset": func(a, b *side) {
			require.NoError(t, a.qp.Modify(&verbs.QPAttr{State: verbs.QPReset}, verbs.QPMaskState))
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newConnected(t, defaults())
			p := a.qp.peer
			duringCopy(t, a, b, func() {
				a.qp.mu.Unlock()
				f(a, b)
				a.qp.mu.Lock()
				writing := p.writing
				a.qp.mu.Unlock()
				require.Zero(t, writing)
			})
		})
	}
}
