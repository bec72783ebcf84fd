package rdmanet

import (
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
)

// maxUnanswered bounds the requests that a listener has taken in and not answered: who
// waits for a place is better off in its dial, where it holds no descriptor of ours.
const maxUnanswered = 128

// DefaultBacklog is how many connections wait for Accept unless ListenConfig says
// otherwise: as many as package net has wait, which is the system's net.core.somaxconn, or
// 128 where there is no such thing.
func DefaultBacklog() int { return systemBacklog() }

var systemBacklog = sync.OnceValue(func() int {
	text, err := os.ReadFile("/proc/sys/net/core/somaxconn")
	if err != nil {
		return parseSomaxconn("")
	}
	return parseSomaxconn(string(text))
})

// parseSomaxconn takes the number of the file, as package net does.
func parseSomaxconn(text string) int {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
	if err != nil || n == 0 {
		return 128
	}
	return int(min(n, math.MaxInt32))
}
