package object

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestUsers(t *testing.T) {
	var u Users
	require.NoError(t, u.Hold())
	busy := func(n int) error {
		if n > 0 {
			return verbs.ErrBusy
		}
		return nil
	}
	require.ErrorIs(t, u.Close(busy), verbs.ErrBusy)
	require.NoError(t, u.Hold(), "it is open still")
	require.Equal(t, 2, u.Count())
	u.Release()
	u.Release()
	require.NoError(t, u.Close(busy))
	require.ErrorIs(t, u.Close(busy), verbs.ErrClosed)
	require.ErrorIs(t, u.Hold(), verbs.ErrClosed)
	require.Zero(t, u.Count())
}

// cq is an object that cannot be made.
type cq struct{ verbs.CQ }

func TestCreate(t *testing.T) {
	var u Users
	made, err := Create(&u, func() (int, error) { return 7, nil })
	require.NoError(t, err)
	require.Equal(t, 7, made)
	require.Equal(t, 1, u.Count())

	failure := errors.New("no memory")
	none, err := Create(&u, func() (verbs.CQ, error) { var q *cq; return q, failure })
	require.ErrorIs(t, err, failure)
	require.True(t, none == nil, "a nil *cq in an interface is not nil")
	require.Equal(t, 1, u.Count())

	u.Release()
	require.NoError(t, u.Close(func(int) error { return nil }))
	_, err = Create(&u, func() (int, error) { t.Error("called"); return 0, nil })
	require.ErrorIs(t, err, verbs.ErrClosed)
}
