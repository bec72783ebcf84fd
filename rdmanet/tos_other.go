//go:build !unix

package rdmanet

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
)

func setSocketTOS(syscall.RawConn, bool, uint8) error {
	return fmt.Errorf("TOS cannot be set on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
