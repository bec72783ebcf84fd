package rdmanet

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestKeepAliveConfig(t *testing.T) {
	config := func(idle, interval time.Duration, count int) net.KeepAliveConfig {
		return net.KeepAliveConfig{Enable: true, Idle: idle, Interval: interval, Count: count}
	}
	defaults := config(DefaultKeepAliveIdle, DefaultKeepAliveInterval, DefaultKeepAliveCount)
	off := defaults
	off.Enable = false
	assert.Equal(t, defaults, dialKeepAlive(0, net.KeepAliveConfig{}))
	assert.Equal(t, config(3, DefaultKeepAliveInterval, DefaultKeepAliveCount), dialKeepAlive(3, net.KeepAliveConfig{}))
	assert.Equal(t, off, dialKeepAlive(-1, net.KeepAliveConfig{}))
	assert.Equal(t, config(7, DefaultKeepAliveInterval, 2), dialKeepAlive(-1, config(7, 0, 2)))
	assert.Equal(t, defaults, dialKeepAlive(1<<62, net.KeepAliveConfig{}))
	assert.Equal(t, config(7, DefaultKeepAliveInterval, DefaultKeepAliveCount), dialKeepAlive(0, config(7, 1<<62, 2)))
	assert.Equal(t, config(7, 8, DefaultKeepAliveCount), dialKeepAlive(0, config(7, 8, 1<<40)))
	assert.Equal(t, config(4, 9, 2), mergeKeepAlive(config(4, 5, 6), config(-1, 9, 2)))
	assert.Equal(t, config(4, 5, 6), mergeKeepAlive(config(4, 5, 6), config(-1, -1, -1)))
}
