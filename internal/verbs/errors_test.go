package verbs

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWCStatusText(t *testing.T) {
	require.EqualError(t, WCLocQPOpErr, "work request failed: LOC_QP_OP_ERR")
}

func TestExplain(t *testing.T) {
	err := Explain("no more", ErrPeerGone, &fs.PathError{Op: "open", Path: "x", Err: syscall.ECONNRESET})
	require.EqualError(t, err, "no more")
	require.ErrorIs(t, err, ErrPeerGone)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	var path *fs.PathError
	require.True(t, errors.As(err, &path))
}
