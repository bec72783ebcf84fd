package driver

import (
	"fmt"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// maxMemory bounds a Memory in bytes: an address space of 47 bits holds two of them.
const maxMemory = 1 << 46

// CheckMemory says what is wrong with the arguments of AllocMemory.
func CheckMemory(size, committed int) error {
	if size <= 0 || committed < 0 || committed > size || int64(size) > maxMemory {
		return fmt.Errorf("%w: memory of %d bytes of which %d are committed", verbs.ErrInvalid, size, committed)
	}
	return nil
}

// CheckCommit says what is wrong with the argument of Memory.Commit.
func CheckCommit(n, size int) error {
	if n < 0 || n > size {
		return fmt.Errorf("%w: commit of %d bytes in memory of %d", verbs.ErrInvalid, n, size)
	}
	return nil
}
