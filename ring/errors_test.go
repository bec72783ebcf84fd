package ring

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// requireViolation checks the detail of a protocol error, and how it matches.
func requireViolation(t testing.TB, want ProtocolError, err error) {
	t.Helper()
	require.ErrorIs(t, err, ErrProtocol)
	require.NotErrorIs(t, err, ErrConfig)
	var detail *ProtocolError
	require.ErrorAs(t, err, &detail)
	require.Equal(t, want, *detail)
}

func TestProtocolError(t *testing.T) {
	err := fmt.Errorf("read: %w", &ProtocolError{What: "data beyond the free space of the ring", Got: 5, Limit: 4})
	require.ErrorIs(t, err, ErrProtocol)
	assert.NotErrorIs(t, err, errors.New("other"))
	assert.EqualError(t, err, "read: ring: peer broke the protocol: data beyond the free space of the ring (got 5, limit 4); close the connection")
}

func TestGeometry(t *testing.T) {
	for _, tt := range []struct {
		size, maxSize, depth uint32
		text                 string // "" when valid
	}{
		{MinSize, MinSize, MinDepth, ""},
		{MinSize, MaxSize, MaxDepth, ""},
		{MaxSize, MaxSize, 1000, ""},
		{0, MaxSize, 64, "size 0 is not"},
		{2048, MaxSize, 64, "size 2048 is not"},
		{4097, MaxSize, 64, "size 4097 is not"},
		{128 << 20, 128 << 20, 64, "size 134217728 is not"},
		{1 << 31, 1 << 31, 64, "size 2147483648 is not"},
		{4096, 0, 64, "maximum size 0 is not"},
		{4096, 12288, 64, "maximum size 12288 is not"},
		{4096, 128 << 20, 64, "maximum size 134217728 is not"},
		{8192, 4096, 64, "maximum size 4096 is below the size 8192"},
		{4096, 4096, 0, "receive depth 0 is not"},
		{4096, 4096, 63, "receive depth 63 is not"},
		{4096, 4096, 32769, "receive depth 32769 is not"},
		{4096, 4096, 1<<32 - 1, "receive depth 4294967295 is not"},
	} {
		s, errS := NewSender(tt.size, tt.maxSize, tt.depth)
		r, errR := NewReceiver(tt.size, tt.maxSize, tt.depth)
		if tt.text == "" {
			require.NoError(t, errS)
			require.NoError(t, errR)
			assert.Equal(t, tt.size, s.Size())
			assert.Equal(t, tt.size, r.Size())
			continue
		}
		for _, err := range []error{errS, errR} {
			require.ErrorIs(t, err, ErrConfig)
			require.NotErrorIs(t, err, ErrProtocol)
			require.ErrorContains(t, err, "ring: bad argument: "+tt.text)
		}
		assert.Nil(t, s)
		assert.Nil(t, r)
	}
}
