//go:build linux && (amd64 || arm64)

package soft

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// sparse makes a memfd without memory of its own.
func sparse(t *testing.T, size uint64) int {
	t.Helper()
	return memfd(t, int64(size), shm.WantSeals)
}

// offerOfMRs is the offer of an inbox and of MRs, and its descriptors.
func offerOfMRs(t *testing.T, mrs ...shm.MROffer) (blob []byte, fds []int) {
	t.Helper()
	g := shm.GeometryFor(16)
	blob = make([]byte, offerHeader)
	blob[0], blob[2], blob[3], blob[8] = offerVersion, g.Shift, g.BounceShift, byte(len(mrs))
	fds = append(fds, sparse(t, uint64(g.Size())))
	for _, o := range mrs {
		blob = o.Append(blob)
		fds = append(fds, sparse(t, o.Size))
	}
	return blob, fds
}

// TestHostileAddressSpace has peers offer memory that is large and costs them nothing.
// Mapped as it is offered it would leave no address space for anybody else in the
// process, which would end.
func TestHostileAddressSpace(t *testing.T) {
	mr := func(key uint32, size uint64) shm.MROffer {
		return shm.MROffer{Key: key, Access: verbs.AccessRemoteWrite, Addr: uint64(shm.PageSize), Size: size}
	}
	before := shm.AllMapped.Load()

	blob, fds := offerOfMRs(t, mr(1, 2*shm.MaxPeerMapped))
	_, err := openOffer(blob, fds)
	require.ErrorIs(t, err, verbs.ErrProtocol)

	// All MRs of a peer together, offered or sent later, are bounded, too.
	var mrs []shm.MROffer
	for key := range uint32(maxOffered) {
		mrs = append(mrs, mr(key+1, shm.MaxPeerMapped/2))
	}
	blob, fds = offerOfMRs(t, mrs...)
	p, err := openOffer(blob, fds)
	require.NoError(t, err)
	require.Len(t, p.mrs, 2)
	require.LessOrEqual(t, shm.AllMapped.Load()-before, int64(shm.MaxPeerMapped+len(p.out.Data)))
	require.NotNil(t, p.find(maxOffered), "the latest stays")
	fd := sparse(t, shm.MaxPeerMapped)
	defer control.CloseFDs([]int{fd})
	m, err := mr(9, shm.MaxPeerMapped).Open(fd)
	require.NoError(t, err)
	p.add(m)
	require.Len(t, p.mrs, 1)

	// So are those of all peers.
	shm.AllMapped.Add(shm.MaxAllMapped - shm.MaxPeerMapped)
	_, err = mr(10, 2*uint64(shm.PageSize)).Open(fd)
	shm.AllMapped.Add(shm.MaxPeerMapped - shm.MaxAllMapped)
	require.ErrorIs(t, err, verbs.ErrNoMemory)

	p.unmap()
	require.Equal(t, before, shm.AllMapped.Load())
}
