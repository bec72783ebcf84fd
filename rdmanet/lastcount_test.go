package rdmanet

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLastCount asks what counts on while it is asked for the last time: nobody is told of more than is kept.
func TestLastCount(t *testing.T) {
	var n atomic.Int64
	next := func() int64 { return n.Add(1) }
	var c lastCount[int64]
	require.EqualValues(t, 1, c.now(next))
	told := make(chan int64, 1)
	last := c.end(func() int64 {
		n := next()
		go func() { told <- c.now(next) }()
		time.Sleep(10 * time.Millisecond) // for the other to ask, if it may
		return n
	})
	require.EqualValues(t, 2, last)
	require.EqualValues(t, 2, <-told)
	require.EqualValues(t, 2, c.now(next))
}
