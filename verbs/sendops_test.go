package verbs

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSendOps(t *testing.T) {
	some := NewSendOps(WRRDMAWrite, WRAtomicWrite)
	for op := WRRDMAWrite; op <= WRAtomicWrite; op++ {
		assert.True(t, SendOps(0).Has(op), "%v", op)
		assert.Equal(t, op == WRRDMAWrite || op == WRAtomicWrite, some.Has(op), "%v", op)
	}
	assert.ErrorIs(t, some.Refuse(WRSend), ErrInvalid)
	assert.ErrorContains(t, some.Refuse(WRSend), "SEND to a QP that was made without it")
}
