//go:build linux && (amd64 || arm64)

package shm

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// MROffer says where an MR is in the memfd that comes with it.
type MROffer struct {
	Key    uint32
	Access verbs.AccessFlags
	Addr   uint64
	Size   uint64
	Off    uint64
}

// MROfferSize is how many bytes an MROffer takes in a message.
const MROfferSize = 32

// Append appends the offer to a message.
func (o MROffer) Append(b []byte) []byte {
	b = HostOrder.AppendUint32(b, o.Key)
	b = HostOrder.AppendUint32(b, uint32(o.Access))
	b = HostOrder.AppendUint64(b, o.Addr)
	b = HostOrder.AppendUint64(b, o.Size)
	return HostOrder.AppendUint64(b, o.Off)
}

// ParseMROffer reads an offer from the MROfferSize bytes at the start of b; Open checks it.
func ParseMROffer(b []byte) MROffer {
	return MROffer{
		Key:    HostOrder.Uint32(b),
		Access: verbs.AccessFlags(HostOrder.Uint32(b[4:])),
		Addr:   HostOrder.Uint64(b[8:]),
		Size:   HostOrder.Uint64(b[16:]),
		Off:    HostOrder.Uint64(b[24:]),
	}
}

// Open maps the MR. A peer's pages are mapped writable only where we may write.
func (o MROffer) Open(fd int) (*RemoteMR, error) {
	page := uint64(PageSize)
	const limit = 1 << 46
	if o.Size == 0 || o.Size > MaxPeerMapped || o.Off > limit || o.Addr+o.Size < o.Addr || o.Addr%page != o.Off%page {
		return nil, fmt.Errorf("%w: MR of %d bytes at %#x, offset %d", verbs.ErrProtocol, o.Size, o.Addr, o.Off)
	}
	prot := unix.PROT_READ
	if o.Access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0 {
		prot |= unix.PROT_WRITE
	}
	skip := o.Off % page
	mapped, err := mapCounted(fd, int64(o.Off-skip), int(o.Size+skip), prot)
	if err != nil {
		return nil, err
	}
	MappedMRs.Add(1)
	return &RemoteMR{Key: o.Key, Access: o.Access, Addr: o.Addr, Data: mapped[skip:], Mapped: mapped}, nil
}
