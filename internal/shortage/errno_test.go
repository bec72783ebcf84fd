package shortage

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// TestWhatPasses: clients wait for what may come back, and not for what the process may not have.
func TestWhatPasses(t *testing.T) {
	for _, tt := range []struct {
		err   error
		errno syscall.Errno
		is    bool
	}{
		{syscall.EMFILE, syscall.EMFILE, true},
		{syscall.ENOMEM, syscall.ENOMEM, true},
		{verbs.ErrNoMemory, syscall.ENOMEM, true},
		{fmt.Errorf("%w: %w", verbs.ErrNoMemory, syscall.ENOSPC), syscall.ENOSPC, true},
		{fmt.Errorf("%w: %w", verbs.ErrNoMemory, syscall.EPERM), syscall.EPERM, false},
		{fmt.Errorf("%w: %w", verbs.ErrNoMemory, syscall.EACCES), syscall.EACCES, false},
		{fmt.Errorf("%w: %w", verbs.ErrNoMemory, syscall.ENOSYS), syscall.ENOSYS, false},
		{fmt.Errorf("%w: %w", verbs.ErrNoMemory, syscall.EFBIG), syscall.EFBIG, false},
		{syscall.EPERM, syscall.EPERM, false},
		{errors.New("another"), syscall.ENOMEM, false},
	} {
		errno, is := Errno(tt.err)
		require.Equal(t, tt.is, is, tt.err)
		require.Equal(t, tt.errno, errno, tt.err)
	}
}
