package leaktest

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDescriptorIsFound(t *testing.T) {
	before := Take()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	assert.Contains(t, before.wait(3, nil), "socket:")
	require.NoError(t, l.Close())
	assert.Empty(t, before.Wait(nil))
}
