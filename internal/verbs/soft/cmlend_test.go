//go:build linux && (amd64 || arm64)

package soft

import (
	"testing"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/stretchr/testify/require"
)

// TestLend has the sink of a listener take the goroutines that bring requests, and wait on
// them: they come after it has returned, and hold up no other request.
func TestLend(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 4, verbs.CMOptions{})
	inSink, lent, goOn := false, make(chan verbs.CMID), make(chan struct{})
	l.SetSink(func(ev verbs.CMEvent) {
		inSink = true
		lender := ev.ID.(verbs.Lender)
		require.True(t, lender.Lend(func() {
			if inSink {
				t.Error("it runs inside the sink")
			}
			lent <- ev.ID
			<-goOn
			require.False(t, lender.Lend(func() {}), "it is lent already")
			require.NoError(t, ev.ID.Close())
			lent <- ev.ID
		}))
		require.False(t, lender.Lend(func() {}), "somebody has it")
		inSink = false
	})
	var dialers []*testID
	for range 3 {
		dialers = append(dialers, dialTo(t, l.LocalAddr()))
		<-lent
	}
	close(goOn)
	for _, d := range dialers {
		<-lent
		d.next(verbs.CMRejected)
	}
}

// TestLendTooLate asks for the goroutine when it has gone.
func TestLendTooLate(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 4, verbs.CMOptions{})
	d := dialTo(t, l.LocalAddr())
	a, _ := l.request()
	require.True(t, until(func() bool { return !a.CMID.(*cmID).isLending() }))
	require.False(t, a.CMID.(verbs.Lender).Lend(func() { t.Error("it runs") }))
	require.NoError(t, a.Close())
	d.next(verbs.CMRejected)
}

func (id *cmID) isLending() bool {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.lending
}
