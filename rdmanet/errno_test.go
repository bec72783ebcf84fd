package rdmanet

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAddressErrno(t *testing.T) {
	noDevice := fmt.Errorf("%w: %w", ErrNoDevice, os.NewSyscallError("open", syscall.ENODEV))
	for _, tt := range []struct {
		name string
		err  error
		want syscall.Errno
	}{
		{"one", os.NewSyscallError("bind", syscall.EADDRINUSE), syscall.EADDRINUSE},
		{"another kind", os.NewSyscallError("bind", syscall.EINVAL), syscall.EINVAL},
		{"behind a driver without device", errors.Join(noDevice, syscall.EADDRNOTAVAIL), syscall.EADDRNOTAVAIL},
		{"of a driver without device", noDevice, 0},
		{"no route", errors.Join(noDevice, ErrNoRoute), 0},
		{"the address before the rest", errors.Join(syscall.ENOSYS, syscall.EADDRINUSE), syscall.EADDRINUSE},
		{"none", errBroken, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := addressErrno(tt.err)
			require.Equal(t, tt.want != 0, ok)
			require.Equal(t, tt.want, got)
		})
	}
}
