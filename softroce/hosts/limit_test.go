//go:build linux

package hosts

import (
	"fmt"
	"net"
	"time"
)

// A limit is how long a failure may stay unnoticed: what the timeouts add up to, and
// what there is on top for detours and for emulated hosts that share two processors.
type limit struct {
	sum   time.Duration
	slack time.Duration
}

func (l limit) total() time.Duration { return l.sum + l.slack }

// against tells a measured time as a ratio of what the timeouts add up to.
func (l limit) against(took time.Duration) string {
	if l.sum == 0 {
		return fmt.Sprintf("%.2f s, allowed are %v", took.Seconds(), l.slack)
	}
	return fmt.Sprintf("%.2f s, %.2f of the %.2f s of its timeouts, allowed are %v more", took.Seconds(), took.Seconds()/l.sum.Seconds(), l.sum.Seconds(), l.slack)
}

// A request without an acknowledgement is given up after 4.096 us x 2^16, once for
// itself and once for each of the six retries that soft-RoCE is asked for.
const unacknowledged = (4096 << 16) * 7 * time.Nanosecond

// A silent peer is asked after Idle, and given up when it has not answered for Count
// times Interval, or when the question itself is given up.
func silence(k net.KeepAliveConfig) time.Duration {
	return k.Idle + min(time.Duration(k.Count)*k.Interval, unacknowledged)
}

// slack is that of everything that a timer decides.
const slack = time.Second

var (
	// byDefault is the keepalive of a connection that asks for nothing.
	byDefault = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: time.Second, Count: 4}

	// quick is for a program that wants to know within two seconds.
	quick = net.KeepAliveConfig{Enable: true, Idle: 500 * time.Millisecond, Interval: 250 * time.Millisecond, Count: 4}

	withoutKeepAlive = Settings{KeepAlive: -1}
	withQuick        = Settings{KeepAliveConfig: quick}
)

var (
	// atOnce is for what the other end's kernel, or one's own, tells.
	atOnce = limit{slack: time.Second}

	byAck     = limit{unacknowledged, slack}
	byQuick   = limit{silence(quick), slack}
	bySilence = limit{silence(byDefault), slack}
)
