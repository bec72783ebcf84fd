package ring

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestControlReserve sends every credit that can become due while the peer reaps
// nothing, with a growth on the way, after data has taken all that it may.
func TestControlReserve(t *testing.T) {
	cfg := endConfig{size: 4096, maxSize: 1 << 16, depth: MinDepth}
	m := newModel(t, newSeeded(1), [2]endConfig{cfg, cfg})
	a, b := m.ends[0], m.ends[1]
	a.grow(1 << 16)
	a.sendCredit()
	m.settle(true)
	for a.write(1) {
	}
	require.Equal(t, ControlReserve, a.tx.ControlSlots())

	credits := 0
	count := func(f func()) {
		before := a.messages
		f()
		credits += int(a.messages - before)
	}
	// b fills the old ring, and then the new area, in as few messages as leave every
	// rule of CreditDue its own credits.
	for range 32 {
		require.True(t, b.write(128))
	}
	for range 2 {
		count(func() { a.arrive(16); a.reap(16) })
	}
	for a.rx.Buffered() > 0 {
		count(func() { a.consume(4096 / 10) })
	}
	for b.write((1<<16 - 4096) / 16) {
	}
	require.Zero(t, b.tx.Free())
	count(func() { a.arrive(16); a.reap(16) })
	for a.rx.Buffered() > 0 {
		count(func() { a.consume((1 << 16) / 10) })
	}
	assert.Equal(t, ControlReserve-2, credits, "three by receives, six and five by bytes")
	a.finish()
	assert.Zero(t, a.tx.ControlSlots(), "the reserve is exactly what is needed")
	m.settle(true)
}
