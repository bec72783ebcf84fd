package soak

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMore(t *testing.T) {
	before := map[string]int{"ctx": 2, "qp": 1}
	require.False(t, more(map[string]int{"ctx": 2, "qp": 1}, before))
	require.False(t, more(map[string]int{"ctx": 1}, before))
	require.True(t, more(map[string]int{"ctx": 1, "qp": 2}, before))
	require.True(t, more(map[string]int{"ctx": 2, "qp": 1, "mr": 1}, before))
}
