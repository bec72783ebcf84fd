package rdmanet

import (
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sleeping tells when the next call that waits in a direction has looked for the last time:
// from then on it needs a notification.
func sleeping(c *Conn, d direction) <-chan struct{} {
	asleep := make(chan struct{})
	var once sync.Once
	w := c.waiter(d)
	arm := w.arm
	w.arm = func() bool {
		over := arm()
		if !over {
			once.Do(func() { close(asleep) })
		}
		return over
	}
	return asleep
}

// TestRescue has a device lose every notification. Who sleeps is woken by the keepalive
// when what it waits for has lain there for a while, and not before; and is counted.
func TestRescue(t *testing.T) {
	onSoftware(t)
	for _, c := range []struct {
		name  string
		d     direction
		sleep func(patient) error // until what come has brought
		come  func(patient) error
	}{
		{"Read", dirRead,
			func(p patient) error { _, err := p.ill.Read(make([]byte, 4)); return err },
			func(p patient) error { _, err := p.other.Write([]byte("here")); return err }},
		{"end of file", dirRead,
			func(p patient) error { _, err := p.ill.Read(make([]byte, 4)); return err },
			func(p patient) error { return p.other.CloseWrite() }},
		{"Write", dirWrite,
			func(p patient) error { _, err := p.ill.Write(make([]byte, firstRing()+1)); return err },
			func(p patient) error { readFull(p.t, p.other, firstRing()); return nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPatient(t, failing0, true)
			overNetwork(p.ill)
			require.NoError(t, p.ill.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: time.Hour}))
			tick := func() {
				p.ill.keepAlive.mu.Lock()
				round := p.ill.keepAlive.round
				p.ill.keepAlive.mu.Unlock()
				p.ill.lookAfter(round)
			}
			w := p.ill.waiter(c.d)
			require.NoError(t, p.ill.SetDeadline(time.Now().Add(time.Hour)))
			p.channel().Mute(true)
			asleep := sleeping(p.ill, c.d)
			done := begun(func() error { return c.sleep(p) })
			within(t, patience, "falling asleep", func() { <-asleep })
			tick()
			require.Zero(t, w.overdue.Load(), "there is nothing to do")

			require.NoError(t, c.come(p))
			require.Eventually(t, func() bool { tick(); return w.overdue.Load() != 0 }, patience, time.Millisecond)
			tick()
			select {
			case err := <-done:
				require.Fail(t, "nobody has woken it", "%v", err)
			default:
			}
			require.Zero(t, p.ill.Stats().RescuedWakeups, "it may be about to wake")

			if c.name != "Read" { // which waits for it
				p.ill.rescueSleeper(c.d, w.parks.Load())
			}
			within(t, patience, c.name, func() { <-done })
			require.EqualValues(t, 1, p.ill.Stats().RescuedWakeups)
			p.channel().Mute(false)
			if c.name != "Read" {
				return
			}
			// The deadline is what it was: the next Read sleeps, until its deadline is moved.
			parks := w.parks.Load()
			asleep = sleeping(p.ill, c.d)
			done = begun(func() error { return c.sleep(p) })
			within(t, patience, "falling asleep", func() { <-asleep })
			time.Sleep(5 * time.Millisecond)
			require.Equal(t, parks+1, w.parks.Load(), "it does not spin")
			require.NoError(t, p.ill.SetReadDeadline(time.Now().Add(time.Millisecond)))
			within(t, patience, c.name, func() { require.ErrorIs(t, <-done, os.ErrDeadlineExceeded) })
		})
	}
}
