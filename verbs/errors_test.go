package verbs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWCStatusText(t *testing.T) {
	require.EqualError(t, WCLocQPOpErr, "work request failed: LOC_QP_OP_ERR")
}
