package lane

import (
	"errors"
	"fmt"
	"testing"

	"github.com/rdmanet/go-rdmanet/ring"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProtocolError(t *testing.T) {
	err := fmt.Errorf("read: %w", violation(RuleOverflow, 7, 5, 4))
	require.ErrorIs(t, err, ring.ErrProtocol)
	require.ErrorIs(t, err, RuleOverflow)
	assert.NotErrorIs(t, err, RuleStraddle)
	assert.NotErrorIs(t, err, errors.New("other"))
	assert.EqualError(t, err, "read: lane: peer broke the protocol: stream 7: data beyond the free room of the ring (got 5, limit 4); reset the stream")
	assert.EqualError(t, violation(RuleDepth, 0, 9, 8), "lane: peer broke the protocol: more messages than receives (got 9, limit 8); end the lane")
}

func TestRules(t *testing.T) {
	texts := map[string]Rule{}
	for r := Rule(1); r < numRules; r++ {
		require.NotEmpty(t, r.Error(), "rule %d", uint8(r))
		require.NotContains(t, texts, r.Error())
		texts[r.Error()] = r
		assert.Equal(t, r >= RuleOverflow, r.Scope() == ScopeStream)
	}
	assert.Equal(t, "rule 0", Rule(0).Error())
	assert.Equal(t, "rule 255", Rule(255).Error())
}
