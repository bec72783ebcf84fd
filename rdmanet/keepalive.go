package rdmanet

import (
	"net"
	"os"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/link"
)

// Keepalive of a connection over a network, unless it is set otherwise. A reliable
// connection has none of its own (IBA 9.7.6.1.3 times requests only), so a reader
// whose peer is cut off would wait for ever. After DefaultKeepAliveIdle of silence
// a heartbeat is sent; it is answered by the peer's device, without its software. If
// that takes longer than DefaultKeepAliveCount times DefaultKeepAliveInterval, the
// connection fails with ETIMEDOUT: a black hole is noticed within nine seconds.
const (
	DefaultKeepAliveIdle     = link.DefaultKeepAliveIdle     // 5 s
	DefaultKeepAliveInterval = link.DefaultKeepAliveInterval // 1 s
	DefaultKeepAliveCount    = link.DefaultKeepAliveCount    // 4
)

// What Linux takes for TCP, and no more, so that a program is told the same by both: Count times
// Interval is then a time, too.
const (
	maxKeepAliveTime  = 32767 * time.Second
	maxKeepAliveCount = 127
)

// dialKeepAlive is the configuration of a Dialer's or ListenConfig's two fields, as
// package net reads them: nobody is told of what is out of bounds.
func dialKeepAlive(idle time.Duration, config net.KeepAliveConfig) net.KeepAliveConfig {
	if !config.Enable && idle >= 0 {
		config = net.KeepAliveConfig{Enable: true, Idle: idle}
	}
	config, _ = boundKeepAlive(config)
	return mergeKeepAlive(defaultKeepAlive, config)
}

// boundKeepAlive checks config, and returns what is to be done of it all the same: as package net sets
// one option after the other, what comes before the first that is out of bounds.
func boundKeepAlive(config net.KeepAliveConfig) (net.KeepAliveConfig, error) {
	const unchanged = -1
	switch {
	case config.Idle > maxKeepAliveTime:
		err := keepAliveTimeError("Idle", config.Idle)
		config.Idle, config.Interval, config.Count = unchanged, unchanged, unchanged
		return config, err
	case config.Interval > maxKeepAliveTime:
		err := keepAliveTimeError("Interval", config.Interval)
		config.Interval, config.Count = unchanged, unchanged
		return config, err
	case config.Count > maxKeepAliveCount:
		err := invalid("keepalive Count %d is out of bounds: choose at most %d", config.Count, maxKeepAliveCount)
		config.Count = unchanged
		return config, err
	}
	return config, nil
}

func keepAliveTimeError(field string, d time.Duration) error {
	return invalid("keepalive %s %v is out of bounds: choose at most %v", field, d, maxKeepAliveTime)
}

var defaultKeepAlive = net.KeepAliveConfig{Enable: true, Idle: DefaultKeepAliveIdle, Interval: DefaultKeepAliveInterval, Count: DefaultKeepAliveCount}

// mergeKeepAlive applies config to old: zeros choose the default, negative values
// leave things as they are.
func mergeKeepAlive(old, config net.KeepAliveConfig) net.KeepAliveConfig {
	old.Enable = config.Enable
	choose(&old.Idle, config.Idle, DefaultKeepAliveIdle)
	choose(&old.Interval, config.Interval, DefaultKeepAliveInterval)
	choose(&old.Count, config.Count, DefaultKeepAliveCount)
	return old
}

func choose[T int | time.Duration](old *T, value, otherwise T) {
	switch {
	case value > 0:
		*old = value
	case value == 0:
		*old = otherwise
	}
}

// SetKeepAlive turns the keepalive on or off. It is on unless Dialer or
// ListenConfig say otherwise. While it is off a host that is gone or cut off is noticed
// by Writes only; one that waits for room sends heartbeats at the default times. The end
// of a peer's process is always told. On the software device,
// where the system itself tells at once that the peer's process has died, keepalive
// changes nothing.
func (c *Conn) SetKeepAlive(keepalive bool) error {
	return c.setKeepAlive(func(old net.KeepAliveConfig) net.KeepAliveConfig {
		old.Enable = keepalive
		return old
	})
}

// SetKeepAlivePeriod sets how long the peer may be silent before it is asked for a
// sign of life; 0 means DefaultKeepAliveIdle, and a negative value changes nothing. One above
// 32,767 s is syscall.EINVAL, as for TCP on Linux.
func (c *Conn) SetKeepAlivePeriod(d time.Duration) error {
	if d > maxKeepAliveTime {
		return c.setInvalid(keepAliveTimeError("Idle", d))
	}
	return c.setKeepAlive(func(old net.KeepAliveConfig) net.KeepAliveConfig {
		choose(&old.Idle, d, DefaultKeepAliveIdle)
		return old
	})
}

// SetKeepAliveConfig sets the keepalive. A peer that does not answer is given up,
// with ETIMEDOUT, after at most Idle + Count * Interval. Fields that are 0 mean
// DefaultKeepAliveIdle, DefaultKeepAliveInterval and DefaultKeepAliveCount;
// negative ones change nothing. Unlike TCP's the times need not be whole seconds. Times above
// 32,767 s and a Count above 127 are syscall.EINVAL, as for TCP on Linux: the field changes nothing then, nor
// does one behind it.
//
// A connection that was given work notices a dead peer by that, too; see the
// timeouts in docs/ARCHITECTURE.md.
func (c *Conn) SetKeepAliveConfig(config net.KeepAliveConfig) error {
	config, refused := boundKeepAlive(config)
	err := c.setKeepAlive(func(old net.KeepAliveConfig) net.KeepAliveConfig {
		return mergeKeepAlive(old, config)
	})
	if err == nil && refused != nil {
		return c.setInvalid(refused)
	}
	return err
}

func (c *Conn) setKeepAlive(change func(net.KeepAliveConfig) net.KeepAliveConfig) error {
	return c.set(func() { c.stream.configureKeepAlive(change) })
}

// setInvalid is the error of a setting that cannot be: that there is no connection any more says more.
func (c *Conn) setInvalid(why error) error {
	if err := c.set(nil); err != nil {
		return err
	}
	return c.opError(opSet, os.NewSyscallError("setsockopt", newConnError(syscall.EINVAL, why)))
}
