package driver

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestExplain(t *testing.T) {
	err := Explain("no more", verbs.ErrPeerGone, &fs.PathError{Op: "open", Path: "x", Err: syscall.ECONNRESET})
	require.EqualError(t, err, "no more")
	require.ErrorIs(t, err, verbs.ErrPeerGone)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	var path *fs.PathError
	require.True(t, errors.As(err, &path))
}
