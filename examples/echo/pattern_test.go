package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPatternIsOneStream(t *testing.T) {
	small, large := newPattern(10), newPattern(2*period+1)
	for _, pos := range []int64{0, 1, period - 10, period - 1, period, period + 1, 5*period - 3} {
		assert.Equal(t, small.at(pos, 10), large.at(pos, 10), "position %d", pos)
	}
	assert.Equal(t, large.at(0, 100), large.at(period, 100), "it repeats")
	assert.NotEqual(t, large.at(0, 100), large.at(1<<20, 100), "but not with a power of two")
}

func TestPatternFindsTheFirstWrongByte(t *testing.T) {
	p := newPattern(100)
	got := append([]byte(nil), p.at(1000, 100)...)
	require.NoError(t, p.check(1000, got))
	got[42]++
	got[43]++
	assert.ErrorContains(t, p.check(1000, got), "byte 1042 ")
}
