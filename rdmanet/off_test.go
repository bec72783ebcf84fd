package rdmanet

import (
	"context"
	"log/slog"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSwitchedOff has RDMANET_DEVICE=none, and the option, keep a program from RDMA.
func TestSwitchedOff(t *testing.T) {
	const here = "RDMA is switched off (unset RDMANET_DEVICE, which is none)"
	const asked = "RDMA is switched off (by the option Device, which is none)"
	for name, tt := range map[string]struct{ env, device, says string }{
		"environment":                 {"none", "", here},
		"environment above an option": {"none", "soft0", here},
		"option":                      {"", "none", asked},
		"option above an environment": {"soft0", "none", asked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("RDMANET_DEVICE", tt.env)
			var reasons []string
			told := func(e *FallbackError) {
				require.ErrorIs(t, e, ErrNoDevice)
				require.EqualError(t, e.Err, map[string]string{
					"dial":   "dial tcp " + e.Addr.String() + ": " + tt.says,
					"listen": tt.says,
				}[e.Op])
				reasons = append(reasons, e.Op+" "+e.Reason.String())
			}
			lc := ListenConfig{Device: tt.device, OnFallback: told, Logger: quiet}
			d := Dialer{Device: tt.device, OnFallback: told, Logger: quiet, RetryRDMA: -1}
			l, err := lc.Listen(context.Background(), "tcp", loopbackAddr)
			require.NoError(t, err)
			defer l.Close()
			c, err := d.Dial("tcp", l.Addr().String())
			require.NoError(t, err)
			defer c.Close()
			require.IsType(t, &net.TCPConn{}, c)
			require.False(t, IsRDMA(c))
			require.Equal(t, []string{"listen no device", "dial no device"}, reasons)

			_, err = d.Dial("rdma", l.Addr().String())
			require.EqualError(t, err, "dial rdma "+l.Addr().String()+": "+tt.says)
			require.ErrorIs(t, err, ErrNoDevice)
			_, err = lc.Listen(context.Background(), "rdma", "127.0.0.1:9")
			require.EqualError(t, err, "listen rdma 127.0.0.1:9: "+tt.says)
			require.ErrorIs(t, err, ErrNoDevice)
			// Where TCP does not get there either the reason is not silent.
			const nobody = "127.0.0.1:9"
			_, err = d.Dial("tcp", nobody)
			require.EqualError(t, err, "dial tcp "+nobody+": connect: connection refused (nor by RDMA: "+tt.says+")")
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
			require.ErrorIs(t, err, ErrNoDevice)

			d.RequireRDMA, lc.RequireRDMA = true, true
			_, err = d.Dial("tcp", l.Addr().String())
			require.EqualError(t, err, "dial tcp "+l.Addr().String()+": "+tt.says)
			_, err = lc.Listen(context.Background(), "tcp", loopbackAddr)
			require.ErrorContains(t, err, tt.says)
		})
	}
	t.Run("devices", func(t *testing.T) {
		t.Setenv("RDMANET_DEVICE", "none")
		devices, err := Devices()
		require.Empty(t, devices)
		require.EqualError(t, err, here)
		require.ErrorIs(t, err, ErrNoDevice)
		require.NotEmpty(t, Drivers())
		for _, d := range Drivers() {
			require.EqualError(t, d.Err, here)
		}
	})
}

// TestFirstFallbackIsInfo: of each reason one line is above level debug.
func TestFirstFallbackIsInfo(t *testing.T) {
	r := newRecorder(slog.LevelDebug)
	report := func(op string, reason FallbackReason) slog.Level {
		e := &FallbackError{Op: op, Network: "tcp", Addr: &net.TCPAddr{Port: 7}, Reason: reason, Err: ErrNoDevice}
		e.report(slog.New(r), nil)
		return (<-r.records).Level
	}
	for op, counts := range map[string]int{"dial": 0, "listen": 1} {
		for reason := range fallbackReasons {
			was := fallbacks[counts][reason].Swap(0) // what other tests have met
			first := slog.LevelInfo
			if reason == FallbackRemembered {
				first = slog.LevelDebug // it was another reason before
			}
			require.Equal(t, first, report(op, reason), "%s, %v", op, reason)
			require.Equal(t, slog.LevelDebug, report(op, reason), "%s, %v", op, reason)
			fallbacks[counts][reason].Add(was)
		}
	}
}
