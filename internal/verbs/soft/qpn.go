//go:build linux && (amd64 || arm64)

package soft

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// QPNs are unique in the network namespace: a context claims them in blocks, each
// by binding an abstract socket name, to which a peer connects that was given a
// QPN of the block out of band. Block 0 is left out, since QPN 0 and 1 are special.
const (
	qpnBlockBits  = 12
	qpnBlockSize  = 1 << qpnBlockBits
	qpnBlockCount = 1<<(24-qpnBlockBits) - 1
)

func blockName(device string, block uint32) string {
	return "@rdmanet/" + device + "/qpn/" + strconv.Itoa(int(block))
}

// qpnBlocks are the blocks of a context.
type qpnBlocks struct {
	mu   sync.Mutex
	list []*qpnBlock
	in   datagramIn
}

type qpnBlock struct {
	number uint32
	fd     int            // holds the name; -1 once sock has it
	sock   *blockAcceptor // nil until a QP expects a peer
	used   map[uint32]*qp
	next   uint32
}

// take gives q a number.
func (b *qpnBlocks) take(d *device, q *qp) (uint32, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range b.list {
		if len(k.used) < qpnBlockSize {
			return k.take(q), nil
		}
	}
	k, err := claimBlock(d)
	if err != nil {
		return 0, err
	}
	b.list = append(b.list, k)
	numbered.Store(b, d)
	return k.take(q), nil
}

// take gives the number that was not in use for longest.
func (k *qpnBlock) take(q *qp) uint32 {
	for {
		n := k.number<<qpnBlockBits | k.next
		k.next = (k.next + 1) % qpnBlockSize
		if k.used[n] == nil {
			k.used[n] = q
			return n
		}
	}
}

// claimBlock takes a block that nobody in the network namespace has.
func claimBlock(d *device) (*qpnBlock, error) {
	start := rand.Uint32N(qpnBlockCount)
	for i := range uint32(qpnBlockCount) {
		n := 1 + (start+i)%qpnBlockCount
		fd, err := control.HoldName(blockName(d.name, n))
		if errors.Is(err, unix.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return &qpnBlock{number: n, fd: fd, used: make(map[uint32]*qp), next: rand.Uint32N(qpnBlockSize)}, nil
	}
	return nil, fmt.Errorf("%w: all QP numbers of device %s are in use", verbs.ErrNoMemory, d.name)
}

// give takes a number back.
func (b *qpnBlocks) give(n uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if k := b.block(n); k != nil {
		delete(k.used, n)
	}
}

// find returns the QP of a number, or nil.
func (b *qpnBlocks) find(n uint32) *qp {
	b.mu.Lock()
	defer b.mu.Unlock()
	if k := b.block(n); k != nil {
		return k.used[n]
	}
	return nil
}

func (b *qpnBlocks) block(n uint32) *qpnBlock {
	for _, k := range b.list {
		if k.number == n>>qpnBlockBits {
			return k
		}
	}
	return nil
}

// listen begins to accept peers for QPs of the block of n.
func (b *qpnBlocks) listen(n uint32) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.block(n)
	if k == nil || k.sock != nil {
		return nil
	}
	if err := unix.Listen(k.fd, maxHellos); err != nil {
		return os.NewSyscallError("listen", err)
	}
	// The block keeps its name, whatever becomes of the socket: it has QPs.
	fds, err := dupFDs([]int{k.fd})
	if err != nil {
		return err
	}
	sock, err := control.NewSocket(fds[0])
	if err != nil {
		return err
	}
	unix.Close(k.fd)
	k.fd = -1
	k.sock = &blockAcceptor{blocks: b, sock: sock}
	go k.sock.run()
	return nil
}

// numbered are the blocks of all contexts of this process that have some: *qpnBlocks to *device.
var numbered sync.Map

// ownQPN reports whether a QP of this process on device d, of whatever context, has the number.
func ownQPN(d *device, n uint32) bool {
	found := false
	numbered.Range(func(b, dev any) bool {
		found = dev == d && b.(*qpnBlocks).find(n) != nil
		return !found
	})
	return found
}

// close gives the blocks up; no QP has a number of theirs.
func (b *qpnBlocks) close() {
	numbered.Delete(b)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range b.list {
		if k.sock != nil {
			k.sock.sock.CloseListening()
		} else if k.fd >= 0 {
			unix.Close(k.fd)
		}
	}
	b.list = nil
	b.in.close()
}
