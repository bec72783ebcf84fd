package rdmanet

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring"
)

// pinnedFlavour is a connection on a device that pins what is registered.
func pinnedFlavour() flavour {
	if os.Getenv("RDMANET_TEST_ADDR") != "" {
		return flavour{}
	}
	return flavour{dialer: Dialer{asynchronous: true}, listen: ListenConfig{asynchronous: true}}
}

// firstRing is the size of a ring at first, where connections are tested.
func firstRing() int { return DefaultReadBuffer }

// transfer writes data to one end and compares what comes out of the other.
func transfer(t testing.TB, from, to *Conn, data []byte) {
	t.Helper()
	written := make(chan error, 1)
	go func() {
		_, err := from.Write(data)
		written <- err
	}()
	require.True(t, bytes.Equal(data, readFull(t, to, len(data))))
	require.NoError(t, <-written)
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	return b
}

// TestGrowthByUse has rings grow because they are full, in both directions at once.
func TestGrowthByUse(t *testing.T) {
	client, server := pinnedFlavour().pair(t)
	data := randomBytes(4 * DefaultMaxNetworkReadBuffer)
	back := make(chan struct{})
	go func() {
		defer close(back)
		transfer(t, server, client, data)
	}()
	transfer(t, client, server, data)
	<-back
	for _, c := range []*Conn{client, server} {
		require.Greater(t, c.Stats().WriteBuffer, 2*firstRing())
	}
}

// TestGrowthRegisters has a ring grow as far as it may: it is registered once more, and
// the key of the smaller ring opens nothing any more.
func TestGrowthRegisters(t *testing.T) {
	client, server := pinnedFlavour().pair(t)
	first := server.ep.mr.RKey()
	require.Equal(t, firstRing(), client.Stats().WriteBuffer)
	require.NoError(t, server.SetReadBuffer(MaxReadBuffer))
	require.NotNil(t, server.ep.grown, "the peer has not changed over")
	transfer(t, client, server, randomBytes(int(4*server.ep.maxRing)))
	require.EqualValues(t, server.ep.maxRing, client.Stats().WriteBuffer)
	require.Nil(t, server.ep.grown, "the peer has changed over")
	require.NotEqual(t, first, server.ep.mr.RKey())
	require.Equal(t, server.ep.mr.RKey(), client.ep.peerRKey)
	if server.ep.confirm != nil {
		return // on iWARP the MR of the handshake is read until the connection ends
	}
	within(t, patience, "the deregistration", server.ep.retiring.Wait)

	client.send.mu.Lock()
	_, err := client.ep.qp.PostSend([]verbs.SendWR{{
		Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline | verbs.SendSignaled, Inline: []byte{0},
		RemoteAddr: client.ep.peerAddr + ring.DataOffset, RKey: first,
	}})
	client.send.mu.Unlock()
	require.NoError(t, err)
	within(t, patience, "the end", func() {
		_, err := io.Copy(io.Discard, server)
		require.ErrorIs(t, err, syscall.ECONNRESET)
	})
}

// TestGrowthWithoutKeys has a peer that takes no new key: the ring stays as it is.
func TestGrowthWithoutKeys(t *testing.T) {
	client, server := pinnedFlavour().pair(t)
	server.ep.rekeys, client.ep.rekeys = false, false
	transfer(t, client, server, randomBytes(8*firstRing()))
	require.Equal(t, firstRing(), client.Stats().WriteBuffer)
	require.Equal(t, firstRing(), server.Stats().ReadBuffer)
}

// TestGrowthHalfRead reads the credit block while the peer writes the one that grants
// a growth: the size counts when its key is there.
func TestGrowthHalfRead(t *testing.T) {
	client, _ := pinnedFlavour().pair(t)
	if !client.ep.writeImm {
		t.Skip("where there is no WRITE with immediate credits are sent: nobody reads half of one")
	}
	size := uint32(2 * firstRing())
	block := client.ep.memory.Bytes()[ring.CreditOffset:]
	ring.Credit{Reposted: DefaultRecvDepth, Size: size}.Put(block)
	client.recv.mu.Lock()
	defer client.recv.mu.Unlock()
	require.NoError(t, client.send.takeCredit(client.ep.creditWords(nil)))
	require.EqualValues(t, firstRing(), client.send.ring.Size(), "a size without its key")
	ring.Key{Size: size, RKey: 42}.Put(block)
	require.NoError(t, client.send.takeCredit(client.ep.creditWords(nil)))
	require.EqualValues(t, size, client.send.ring.Size())
	require.EqualValues(t, 42, client.ep.nextRKey)
	require.NotEqualValues(t, 42, client.ep.peerRKey, "the key is for the grown ring")
}

// TestHostileKey has a peer grant a growth under a key that opens nothing: whoever
// believes it loses this connection.
func TestHostileKey(t *testing.T) {
	for _, victims := range wireVictims {
		t.Run(victims.name, func(t *testing.T) {
			p, victim := victims.connect(t, flavour{}, wireConfig{hello: func(h cm.Handshake) []byte {
				h.Features |= cm.FeatureRekey
				b, err := h.MarshalBinary()
				require.NoError(t, err)
				return b
			}})
			block := make([]byte, ring.KeyedCreditLen)
			ring.Credit{Reposted: wireDepth, Size: 2 * wireRing}.Put(block)
			ring.Key{Size: 2 * wireRing, RKey: p.mr.RKey() ^ 0xff}.Put(block)
			p.creditBytes(block)
			within(t, patience, "Write", func() {
				var err error
				for err == nil {
					_, err = victim.Write(make([]byte, wireRing))
				}
				require.ErrorIs(t, err, syscall.ECONNRESET)
			})
			requireClosed(t, victim)
		})
	}
}

// stuckMR is one that a device does not let go of at once.
type stuckMR struct {
	verbs.MR
	release chan struct{}
}

func (m stuckMR) Close() error { <-m.release; return nil }

// TestChangeOverDoesNotWait has a device take its time to deregister the ring that has
// grown. Locks are held then: nothing waits for it but the end of the connection.
func TestChangeOverDoesNotWait(t *testing.T) {
	client, server := pair(t)
	release := make(chan struct{})
	client.recv.mu.Lock()
	client.ep.mr, client.ep.grown = stuckMR{client.ep.mr, release}, client.ep.mr
	within(t, patience, "changeOver", client.ep.changeOver)
	client.recv.mu.Unlock()
	transfer(t, server, client, []byte("goes on"))
	closed := begun(client.Close)
	select {
	case <-client.torn:
		require.Fail(t, "the PD goes before its MRs")
	case <-time.After(10 * time.Millisecond):
	}
	close(release)
	within(t, patience, "the end", func() { require.NoError(t, <-closed); <-client.torn })
}
