package rdmanet

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestDefaultTimeouts(t *testing.T) {
	got, err := (&Dialer{}).pathOptions()
	require.NoError(t, err)
	assert.Equal(t, pathOptions{0, verbs.DefaultAckTimeout, 7}, got)
	assert.Equal(t, 268435456*time.Nanosecond, DefaultAckTimeout)
}

func TestAckTimeoutIsRoundedUp(t *testing.T) {
	const unit = 4096 * time.Nanosecond
	for _, c := range []struct {
		timeout time.Duration
		power   uint8
	}{
		{1, 1}, {unit, 1}, {2 * unit, 1}, {2*unit + 1, 2}, {4 * unit, 2}, {100 * time.Millisecond, 15}, {time.Second, 18},
		{unit<<30 + 1, 31}, {unit << 31, 31},
	} {
		got, err := (&Dialer{AckTimeout: c.timeout}).pathOptions()
		require.NoError(t, err)
		assert.Equal(t, c.power, got.ackTimeout, "%v", c.timeout)
	}
}

func TestRetries(t *testing.T) {
	for retries, want := range map[int]uint8{-5: 0, -1: 0, 0: 7, 1: 1, 7: 7} {
		got, err := (&Dialer{Retries: retries}).pathOptions()
		require.NoError(t, err)
		assert.Equal(t, want, got.retries, "%d", retries)
	}
	for retries, want := range map[int]uint8{0: 0, 1: 1, 7: 7} {
		got, err := (&ListenConfig{Retries: retries}).pathOptions()
		require.NoError(t, err)
		assert.Equal(t, want, got.retries, "%d", retries)
	}
}

func TestBadTimeouts(t *testing.T) {
	for _, network := range []string{"rdma", "tcp"} {
		for says, d := range map[string]Dialer{
			"AckTimeout -1ns is out of bounds: choose up to 2h26m36": {AckTimeout: -1},
			"AckTimeout 3h0m0s is out of bounds":                     {AckTimeout: 3 * time.Hour},
			".Retries 8 is out of bounds: choose 1 to 7":             {Retries: 8},
		} {
			_, err := d.Dial(network, "127.0.0.1:1")
			requireOpError(t, err, "dial", []string{network, says})
			_, err = (&ListenConfig{AckTimeout: d.AckTimeout, Retries: d.Retries}).Listen(context.Background(), network, testAddr())
			requireOpError(t, err, "listen", []string{network, says})
		}
		_, err := (&ListenConfig{Retries: -1}).Listen(context.Background(), network, testAddr())
		requireOpError(t, err, "listen", []string{network, "or 0 for the dialer's"})
	}
}

// TestPathOptionsReachTheQPs asks the QPs of both ends for what was set, and those of
// the next connection of the same two for the defaults.
func TestPathOptionsReachTheQPs(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		set := fl
		set.dialer.TOS, set.dialer.AckTimeout, set.dialer.Retries = 104, 100*time.Millisecond, 3
		set.listen.AckTimeout = time.Second
		client, server := set.pair(t)
		device := client.deviceName()
		devices, _ := cm.Devices() // fails for a driver that has none, beside the others'
		at := slices.IndexFunc(devices, func(d verbs.Device) bool { return d.Name() == device })
		if at >= 0 && devices[at].Transport() == verbs.TransportIWARP {
			return // its QPs have none of these; TCP is below them
		}
		requirePath(t, client, 104, 15, 3)
		requirePath(t, server, 104, 18, 3) // what it does not say the dialer does

		set.listen.TOS, set.listen.Retries = 72, 5
		client, server = set.pair(t)
		requirePath(t, client, 104, 15, 3)
		requirePath(t, server, 72, 18, 5)

		client, server = fl.pair(t)
		retries := uint8(DefaultRetries)
		if device == "rxe0" {
			retries = 6 // seven never end on soft-RoCE
		}
		requirePath(t, client, 0, verbs.DefaultAckTimeout, retries)
		requirePath(t, server, 0, verbs.DefaultAckTimeout, retries)
	})
}

func requirePath(t *testing.T, c *Conn, tos, ackTimeout, retries uint8) {
	t.Helper()
	got, err := c.stream.s.QueryQP()
	require.NoError(t, err)
	require.Equal(t, pathOptions{tos, ackTimeout, retries}, pathOptions{got.AH.TrafficClass, got.Timeout, got.RetryCnt})
}
