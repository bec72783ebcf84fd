//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"fmt"
	"syscall"
)

const (
	// softIWARPVendor is the vendor id that the kernel's siw gives its devices.
	softIWARPVendor = 0x626d74

	// softIWARPBadKey is an offset in the file of a context that siw hands out like any
	// other for what is to be mapped there, and that its library, whose sign of failure it
	// is (SIW_INVAL_UOBJ_KEY of rdma/siw-abi.h), does not map. As the kernel takes the
	// lowest offset that is free, one that was refused is offered again for ever: such a
	// context has room for some eight connections.
	softIWARPBadKey = 0x90000

	// softIWARPPlug is how many entries, of 32 bytes, a CQ has that reaches beyond that
	// offset from the begin of the file. The kernel makes it 1 MiB.
	softIWARPPlug = softIWARPBadKey/32 + 1
)

// plug makes the offset that siw and its library disagree about the middle of a CQ which
// nobody uses. It must be the first object of the context.
func (c *devContext) plug() error {
	r, errno := c.lib.callErrno(c.lib.createCQ, c.handle, softIWARPPlug, 0, 0, 0)
	if r == 0 {
		if errno == 0 {
			errno = syscall.ENOMEM // the library does not say
		}
		return fmt.Errorf("a CQ for soft-iWARP's own sake: %w", failed("ibv_create_cq", errno))
	}
	c.plugCQ = r
	return nil
}

// unplug destroys what plug has made, as the last object of the context.
func (c *devContext) unplug() {
	if c.plugCQ != 0 {
		call(c.lib.destroyCQ, c.plugCQ)
		c.plugCQ = 0
	}
}
