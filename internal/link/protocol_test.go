package link

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/doctest"
	"github.com/rdmanet/go-rdmanet/ring"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

const docEpoch = 0x5eed0001

func protocolPage(t *testing.T) doctest.Page {
	t.Helper()
	return doctest.Read(t, "../..", "PROTOCOL.md")
}

// The frame of the page is that of the code.
func TestDocumentedFrame(t *testing.T) {
	text := []byte("hello, lane\n")
	b := make([]byte, ring.FrameHeaderLen+len(text))
	copy(b[ring.FrameHeaderLen:], text)
	ring.FrameHeader{Len: uint32(len(text)), Sum: ring.Checksum(0, text)}.Put(b)
	require.Equal(t, protocolPage(t).Bytes(t, "frame"), b)

	c := lane.Config{Role: lane.RoleDialer, Epoch: docEpoch, Streams: 8192, Receives: 512, PeerReceives: 512, Places: 128, Checksums: true}
	dialer, err := lane.New(c)
	require.NoError(t, err)
	c.Role = lane.RoleListener
	listener, err := lane.New(c)
	require.NoError(t, err)
	require.NoError(t, listener.Grant(1, 1, lane.Ring{Addr: 0x7e9c30000000, RKey: 0x3f4e5d07, Size: 1024}, 40000))
	m, ok := listener.Next()
	require.True(t, ok)
	var record [lane.RecordLen]byte
	require.NoError(t, m.Record.Put(record[:]))
	require.NoError(t, dialer.Arrive(m.Imm, record[:]))
	s, err := dialer.Open(lane.Ring{Addr: 0x7f2a20000000, RKey: 0x1a2b3c02, Size: 1024}, 0)
	require.NoError(t, err)
	_, ok = dialer.Next()
	require.True(t, ok)
	p, bell, ok, err := dialer.Data(s, len(text), false)
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 0x40010020, bell.Imm)
	require.EqualValues(t, 32, p.Len)
	s.Summed(ring.Checksum(0, text))
	dialer.Close(s)
	m, ok = dialer.Next()
	require.True(t, ok)
	require.Equal(t, ring.Checksum(0, text), m.Record.Sum)
	require.EqualValues(t, 32, m.Record.Total)
}

func TestDocumentedImmediates(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(protocolPage(t).Block(t, "immediates")), "\n")
	require.Len(t, lines, 6)
	for _, line := range lines {
		word, text, ok := strings.Cut(line, "  ")
		require.True(t, ok, line)
		imm, err := strconv.ParseUint(word, 0, 32)
		require.NoError(t, err, line)
		d, err := lane.ParseDoorbell(uint32(imm))
		require.NoError(t, err, line)
		require.EqualValues(t, imm, d.Imm(), line)
		want := d.Type.String()
		if d.Stream != 0 {
			want += fmt.Sprintf(" stream %d,", d.Stream)
		}
		if d.N != 0 {
			want += fmt.Sprintf(" %d", d.N)
		}
		require.Equal(t, want, text)
	}
}

// The example of docs/PROTOCOL.md is what the two machines say to each other.
func TestDocumentedConversation(t *testing.T) {
	page := protocolPage(t)
	var ends [2]*lane.Lane
	for i, role := range []lane.Role{lane.RoleDialer, lane.RoleListener} {
		var err error
		ends[i], err = lane.New(lane.Config{Role: role, Epoch: docEpoch, Streams: 8192, Receives: 512, PeerReceives: 512, Places: 128})
		require.NoError(t, err)
	}
	dialer, listener := ends[0], ends[1]
	arrive := func(to *lane.Lane, imm uint32, record []byte) {
		t.Helper()
		require.NoError(t, to.Arrive(imm, record))
		require.NoError(t, to.Reposted(1))
	}
	// says has an end say a record, which is the one of the page.
	says := func(from, to *lane.Lane, name string, place uint32) {
		t.Helper()
		m, ok := from.Next()
		require.True(t, ok, name)
		require.Equal(t, name, m.Record.Kind.String())
		require.Equal(t, place, m.Place)
		var b [lane.RecordLen]byte
		require.NoError(t, m.Record.Put(b[:]))
		require.Equal(t, page.Bytes(t, name), b[:], name)
		require.EqualValues(t, 0xe0000000, m.Imm)
		arrive(to, m.Imm, b[:])
	}
	sends := func(from, to *lane.Lane, s *lane.Stream, text string, addr uint64, imm uint32) {
		t.Helper()
		p, m, ok, err := from.Data(s, len(text), false)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, addr, p.Ring.Addr+uint64(p.Off))
		require.Equal(t, imm, m.Imm)
		arrive(to, m.Imm, nil)
	}

	dialer.Want(1)
	says(dialer, listener, "WANT", 0)
	require.NoError(t, listener.Grant(1, 2, lane.Ring{Addr: 0x7e9c30000000, RKey: 0x3f4e5d07, Size: 1024}, 40000))
	says(listener, dialer, "PLACES", 0)
	s, err := dialer.Open(lane.Ring{Addr: 0x7f2a20000000, RKey: 0x1a2b3c02, Size: 1024}, 40000)
	require.NoError(t, err)
	says(dialer, listener, "OPEN", 1)
	sends(dialer, listener, s, "hello, lane\n", 0x7e9c30000000, 0x4001000c)

	var opened *lane.Stream
	for e, ok := listener.Event(); ok; e, ok = listener.Event() {
		if e.Kind == lane.EventOpened {
			opened = e.Stream
		}
	}
	require.NotNil(t, opened)
	require.EqualValues(t, 40000, opened.Port())
	require.NoError(t, listener.Accept(opened))
	says(listener, dialer, "ACCEPTED", 1)
	require.NoError(t, listener.Consume(opened, 12))
	sends(listener, dialer, opened, "hello, lane\n", 0x7f2a20000000, 0x4001000c)

	dialer.Close(s)
	says(dialer, listener, "CLOSE", 2)
	m, ok := listener.Next()
	require.True(t, ok)
	require.Equal(t, lane.KindClose, m.Record.Kind)
	var b [lane.RecordLen]byte
	require.NoError(t, m.Record.Put(b[:]))
	arrive(dialer, m.Imm, b[:])
	require.Equal(t, 1, dialer.Streams(), "the other place")
	require.Equal(t, 1, listener.Streams(), "the other place")
	listener.Recall(1)
	says(listener, dialer, "RECALL", 3)
	says(dialer, listener, "RELEASE", 3)
	require.Zero(t, dialer.Streams()+listener.Streams())
}

// Who asks whether a lane's queues can be deeper finds the numbers of the code.
func TestDocumentedDepths(t *testing.T) {
	require.Contains(t, doctest.Read(t, "../..", "OPERATIONS.md").String(),
		fmt.Sprintf("A lane has %d send requests and %d receives, %d,%03d on the software device", sendDepth, defaultReceives, softReceives/1000, softReceives%1000))
	require.Contains(t, doctest.Read(t, "../..", "ARCHITECTURE.md").String(),
		fmt.Sprintf("with %d send requests and %d receives", sendDepth, defaultReceives))
}

// The numbers that docs/PROTOCOL.md is full of are those of the code.
func TestDocumentedLaneNumbers(t *testing.T) {
	require.EqualValues(t, 16, ring.FrameAlign)
	require.EqualValues(t, 16383, lane.MaxStream)
	require.EqualValues(t, 65536, lane.MaxMessage)
	require.EqualValues(t, 64, lane.Granule)
	require.EqualValues(t, 64, lane.RecordLen)
	require.EqualValues(t, 1, lane.RecordVersion)
	require.EqualValues(t, 16, lane.MinDepth)
	require.EqualValues(t, 32768, lane.MaxDepth)
	require.EqualValues(t, 4, lane.SlotsReserve)
	require.EqualValues(t, 4, lane.ControlReserve)
	require.EqualValues(t, 4, lane.MinPlaces)
	require.EqualValues(t, 4096, lane.MaxPlaces)
	require.EqualValues(t, 256, lane.MinRing)
	require.EqualValues(t, 67108864, lane.MaxRing)
	require.EqualValues(t, 8, lane.MaxRings)

	page := protocolPage(t).String()
	kinds := []lane.Kind{
		lane.KindOpen, lane.KindAccepted, lane.KindRefused, lane.KindRing, lane.KindMoved, lane.KindFIN, lane.KindClose, lane.KindReset,
		lane.KindRelease, lane.KindPlaces, lane.KindWant, lane.KindRecall, lane.KindGoAway, lane.KindAbort,
	}
	for i, k := range kinds {
		require.EqualValues(t, i+1, k)
		require.Contains(t, page, fmt.Sprintf("\n| %d | %v |", k, k), "the table of kinds")
	}
	require.Equal(t, fmt.Sprintf("Kind(%d)", len(kinds)+1), lane.Kind(len(kinds)+1).String(), "a kind that the page does not have")
	for i, name := range []string{"port", "going away", "no memory", "closed", "reset", "protocol", "checksum"} {
		require.Contains(t, page, fmt.Sprintf("\n| %d | %s |", i+1, name), "the table of codes")
	}
	require.EqualValues(t, 7, lane.CodeChecksum)
	rule := lane.Rule(1)
	for ; rule.Scope() == lane.ScopeLane; rule++ {
		require.Contains(t, page, fmt.Sprintf("\n| %d | %v |", rule, rule), "the table of rules")
	}
	require.Equal(t, lane.RuleOverflow, rule, "rules of streams are not in the table")
}
