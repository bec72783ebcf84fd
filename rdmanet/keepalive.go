package rdmanet

import (
	"net"
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

// dialKeepAlive is the configuration of a Dialer's or ListenConfig's two fields, as
// package net reads them.
func dialKeepAlive(idle time.Duration, config net.KeepAliveConfig) net.KeepAliveConfig {
	if !config.Enable && idle >= 0 {
		config = net.KeepAliveConfig{Enable: true, Idle: idle}
	}
	return mergeKeepAlive(defaultKeepAlive, config)
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
// sign of life; 0 means DefaultKeepAliveIdle, and a negative value changes nothing.
func (c *Conn) SetKeepAlivePeriod(d time.Duration) error {
	return c.setKeepAlive(func(old net.KeepAliveConfig) net.KeepAliveConfig {
		choose(&old.Idle, d, DefaultKeepAliveIdle)
		return old
	})
}

// SetKeepAliveConfig sets the keepalive. A peer that does not answer is given up,
// with ETIMEDOUT, after at most Idle + Count * Interval. Fields that are 0 mean
// DefaultKeepAliveIdle, DefaultKeepAliveInterval and DefaultKeepAliveCount;
// negative ones change nothing. Unlike TCP's the times need not be whole seconds.
//
// A connection that was given work notices a dead peer by that, too; see the
// timeouts in docs/ARCHITECTURE.md.
func (c *Conn) SetKeepAliveConfig(config net.KeepAliveConfig) error {
	return c.setKeepAlive(func(old net.KeepAliveConfig) net.KeepAliveConfig {
		return mergeKeepAlive(old, config)
	})
}

func (c *Conn) setKeepAlive(change func(net.KeepAliveConfig) net.KeepAliveConfig) error {
	return c.set(func() { c.stream.configureKeepAlive(change) })
}
