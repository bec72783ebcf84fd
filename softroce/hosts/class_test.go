//go:build linux

package hosts

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// testClass looks at the packets of connections: each end's have the type of service that
// it chose, and the listener's that of the dialer if it chose none.
func testClass(t *testing.T, w *world) {
	addrs, err := addresses(hostsVar)
	require.NoError(t, err)
	for _, c := range []struct {
		name         string
		dial, listen Settings
		want         [2]uint8 // of the packets of each host
	}{
		{"None", Settings{}, Settings{}, [2]uint8{0, 0}},
		{"Dialer", Settings{TOS: 104}, Settings{}, [2]uint8{104, 104}},
		{"Both", Settings{TOS: 104}, Settings{TOS: 72}, [2]uint8{104, 72}},
		{"Listener", Settings{}, Settings{TOS: 72}, [2]uint8{0, 72}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tap := newTap(t, os.Getenv(linkVar))
			a, b := w[0].start(t), w[1].start(t)
			near, far := connectTo(a, b, b.listen(c.listen), c.dial)
			const size = 64 << 10
			for _, st := range []stream{pour(near, far, 1, size), pour(far, near, 2, size)} {
				st.whole(prompt)
			}
			seen := tap.classes()
			for rank, want := range c.want {
				classes := seen[addrs[rank]]
				require.NotEmpty(t, classes, "no packets of host %d", rank)
				for tos, n := range classes {
					require.Equal(t, want, tos, "%d packets of host %d", n, rank)
				}
			}
			near.close()
			far.close()
			for _, p := range []*process{a, b} {
				p.signal(syscall.SIGKILL) // it would keep its lane for a while
			}
			for _, h := range w {
				h.connectionless(t) // the next tap is to see none of these packets
			}
		})
	}
}

// connectionless waits until the host has no QP of a connection.
func (h *host) connectionless(t *testing.T) {
	t.Helper()
	var left string
	for began := time.Now(); time.Since(began) < prompt; {
		if left = h.run(t, "rdma resource show qp"); !strings.Contains(left, "type RC") {
			return
		}
	}
	t.Fatalf("host %d: QPs are left:\n%s", h.rank, left)
}

// A tap is a socket that gets a copy of what goes over a link.
type tap struct {
	t  *testing.T
	fd int
}

func newTap(t *testing.T, link string) *tap {
	t.Helper()
	all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, syscall.ETH_P_ALL))
	fd, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, int(all))
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	nic, err := net.InterfaceByName(link)
	require.NoError(t, err)
	require.NoError(t, syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUF, 8<<20))
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrLinklayer{Protocol: all, Ifindex: nic.Index}))
	return &tap{t, fd}
}

// classes counts the packets of connections that there were, by the host that sent them
// and their type of service. Those of the connection manager are not among them.
func (p *tap) classes() map[netip.Addr]map[uint8]int {
	const (
		ipv4, udp     = 20, 8 // lengths of headers
		roce          = 4791
		managementQPN = 1
	)
	seen := map[netip.Addr]map[uint8]int{}
	packet := make([]byte, 8192)
	for until := time.Now().Add(prompt); time.Now().Before(until); {
		n, _, err := syscall.Recvfrom(p.fd, packet, 0)
		if err == syscall.EAGAIN {
			return seen
		}
		require.NoError(p.t, err)
		b := packet[:n]
		if n < ipv4+udp+12 || b[0] != 4<<4|ipv4/4 || b[9] != syscall.IPPROTO_UDP || binary.BigEndian.Uint16(b[ipv4+2:]) != roce {
			continue
		}
		if base := b[ipv4+udp:]; binary.BigEndian.Uint32(base[4:])&0xffffff == managementQPN {
			continue
		}
		from, _ := netip.AddrFromSlice(b[12:16])
		if seen[from] == nil {
			seen[from] = map[uint8]int{}
		}
		seen[from][b[1]]++
	}
	return seen
}
