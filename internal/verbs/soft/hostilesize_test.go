//go:build linux && (amd64 || arm64)

package soft

import (
	"errors"
	"testing"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// sparse makes a memfd without memory of its own.
func sparse(t *testing.T, size uint64) int {
	t.Helper()
	return memfd(t, int64(size), wantSeals)
}

// offerOfMRs is the offer of an inbox and of MRs, and its descriptors.
func offerOfMRs(t *testing.T, mrs ...mrOffer) (blob []byte, fds []int) {
	t.Helper()
	g := geometryFor(16)
	blob = make([]byte, offerHeader)
	blob[0], blob[2], blob[3], blob[8] = offerVersion, g.shift, g.bounceShift, byte(len(mrs))
	fds = append(fds, sparse(t, uint64(g.size())))
	for _, o := range mrs {
		blob = o.append(blob)
		fds = append(fds, sparse(t, o.size))
	}
	return blob, fds
}

// TestHostileAddressSpace has peers offer memory that is large and costs them nothing.
// Mapped as it is offered it would leave no address space for anybody else in the
// process, which would end.
func TestHostileAddressSpace(t *testing.T) {
	mr := func(key uint32, size uint64) mrOffer {
		return mrOffer{key: key, access: verbs.AccessRemoteWrite, addr: uint64(pageSize), size: size}
	}
	before := allMapped.Load()

	blob, fds := offerOfMRs(t, mr(1, 2*maxPeerMapped))
	_, err := openOffer(blob, fds)
	require.ErrorIs(t, err, verbs.ErrProtocol)

	// All MRs of a peer together, offered or sent later, are bounded, too.
	var mrs []mrOffer
	for key := range uint32(maxOffered) {
		mrs = append(mrs, mr(key+1, maxPeerMapped/2))
	}
	blob, fds = offerOfMRs(t, mrs...)
	p, err := openOffer(blob, fds)
	require.NoError(t, err)
	require.Len(t, p.mrs, 2)
	require.LessOrEqual(t, allMapped.Load()-before, int64(maxPeerMapped+len(p.out.data)))
	require.NotNil(t, p.find(maxOffered), "the latest stays")
	fd := sparse(t, maxPeerMapped)
	defer closeFDs([]int{fd})
	m, err := mr(9, maxPeerMapped).open(fd)
	require.NoError(t, err)
	p.add(m)
	require.Len(t, p.mrs, 1)

	// So are those of all peers.
	allMapped.Add(maxAllMapped - maxPeerMapped)
	_, err = mr(10, 2*uint64(pageSize)).open(fd)
	allMapped.Add(maxPeerMapped - maxAllMapped)
	require.ErrorIs(t, err, verbs.ErrNoMemory)

	p.unmap()
	require.Equal(t, before, allMapped.Load())
}

// TestHostileHugePages: where there are none left, memory of huge pages that the peer
// has made holes in is SIGBUS.
func TestHostileHugePages(t *testing.T) {
	const size = 2 << 20
	fd, err := unix.MemfdCreate("hostile", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_HUGETLB|unix.MFD_HUGE_2MB)
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOENT) {
		t.Skip("this kernel has no huge pages of 2 MiB")
	}
	require.NoError(t, err)
	defer closeFDs([]int{fd})
	require.NoError(t, unix.Ftruncate(fd, size))
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, wantSeals)
	require.NoError(t, err)
	_, err = mapPeer(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE)
	require.ErrorIs(t, err, verbs.ErrProtocol)
}
