//go:build linux

package rdmanet

import (
	"bytes"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring"
)

// sharedMemory is how many bytes of memory the process's memfds hold.
func sharedMemory(t *testing.T) (held int) {
	t.Helper()
	for fd, target := range leaktest.OpenFiles() {
		if !strings.Contains(target, "memfd:rdma") {
			continue
		}
		var st syscall.Stat_t
		err := syscall.Stat("/proc/self/fd/"+fd, &st)
		if err == syscall.ENOENT {
			continue // a line of an earlier connection that nobody wanted
		}
		require.NoError(t, err)
		held += int(st.Blocks) * 512
	}
	return held
}

// TestIdleSharedMemory has connections that moved little hold a page for the ring and
// one for the queue at either end, and grow from there on as if all were backed.
func TestIdleSharedMemory(t *testing.T) {
	before := sharedMemory(t)
	const n = 20
	clients, servers := manyPairs(t, n)
	attr, err := clients[0].ep.id.Verbs().QueryDevice()
	require.NoError(t, err)
	if attr.Caps&verbs.CapODP == 0 {
		require.Zero(t, sharedMemory(t)-before, "only the software device shares memory")
		closeAll(t, clients, servers)
		return
	}
	for i := range n {
		transfer(t, clients[i], servers[i], bytes.Repeat([]byte{byte(i)}, 1000))
		transfer(t, servers[i], clients[i], bytes.Repeat([]byte{byte(i)}, 1000))
	}
	require.LessOrEqual(t, sharedMemory(t)-before, 2*n*2*os.Getpagesize())
	for i := range n {
		transfer(t, clients[i], servers[i], randomBytes(10000*(i+1)))
		transfer(t, servers[i], clients[i], randomBytes(7000*(i+1)))
	}
	closeAll(t, clients, servers)
}

// TestUnwrittenData has a peer announce what it has not written: the owner looks at
// memory that is there.
func TestUnwrittenData(t *testing.T) {
	client, server := pair(t)
	if !server.ep.onDemand {
		require.GreaterOrEqual(t, server.ep.memory.Committed(), ring.DataOffset+DefaultReadBuffer)
		return
	}
	for total := 3000; total < DefaultReadBuffer; total += 3000 {
		bell := ring.Doorbell{Kind: ring.KindData, Len: 3000}
		client.send.mu.Lock()
		_, err := client.ep.qp.PostSend([]verbs.SendWR{{
			Opcode: verbs.WRRDMAWriteWithImm, Flags: verbs.SendInline, RemoteAddr: client.ep.peerAddr, RKey: client.ep.peerRKey, ImmData: bell.Imm(),
		}})
		client.send.mu.Unlock()
		require.NoError(t, err)
		require.Eventually(t, func() bool { return server.arrived() == total }, patience, time.Millisecond)
		require.GreaterOrEqual(t, server.ep.memory.Committed(), ring.DataOffset+total)
	}
	readFull(t, server, DefaultReadBuffer/3000*3000)
}
