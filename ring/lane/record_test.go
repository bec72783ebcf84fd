package lane

import (
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"github.com/rdmanet/go-rdmanet/ring"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The records that the tests and the fuzzers begin with, and what they are on the wire.
// The bytes are written out: they must not follow the code.
var wireRecords = []struct {
	name string
	r    Record
	hex  string
}{
	{"open", Record{Kind: KindOpen, Stream: 5, Epoch: 3, Number: 0x01020304, Ring: Ring{0x7f2a10000000, 0x1a2b3c01, 4096}, Opens: 9, Port: 40001}, `
		01 01 05 00  03 00 00 00  04 03 02 01  00 00 00 00
		00 00 00 10  2a 7f 00 00  01 3c 2b 1a  00 10 00 00
		00 00 00 00  00 00 00 00  09 00 00 00  00 00 00 00
		41 9c 00 00  00 00 00 00  00 00 00 00  00 00 00 00`},
	{"accepted", Record{Kind: KindAccepted, Stream: 16383, Count: 1, Epoch: 1}, `
		01 02 ff 3f  01 00 00 00  00 00 00 00  00 00 01 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00`},
	{"refused", Record{Kind: KindRefused, Stream: 5, Code: CodePort}, `
		01 03 05 00  00 00 00 00  00 00 00 00  01 00 00 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00`},
	{"ring", Record{Kind: KindRing, Stream: 5, Ring: Ring{0x20000000, 7, 1 << 20}}, `
		01 04 05 00  00 00 00 00  00 00 00 00  00 00 00 00
		00 00 00 20  00 00 00 00  07 00 00 00  00 00 10 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00`},
	{"moved", Record{Kind: KindMoved, Stream: 5}, `
		01 05 05 00  00 00 00 00  00 00 00 00  00 00 00 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00`},
	{"fin", Record{Kind: KindFIN, Stream: 5, Total: 0x0102030405060708, Sum: 0xe3069283}, `
		01 06 05 00  00 00 00 00  00 00 00 00  00 00 00 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
		08 07 06 05  04 03 02 01  00 00 00 00  83 92 06 e3
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00`},
	{"close", Record{Kind: KindClose, Stream: 5, Total: 12}, `
		01 07 05 00  00 00 00 00  00 00 00 00  00 00 00 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
		0c 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00`},
	{"reset", Record{Kind: KindReset, Stream: 5, Code: CodeChecksum}, `
		01 08 05 00  00 00 00 00  00 00 00 00  07 00 00 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00`},
	{"release", Record{Kind: KindRelease, Stream: 5}, `
		01 09 05 00  00 00 00 00  00 00 00 00  00 00 00 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00`},
	{"places", Record{Kind: KindPlaces, Stream: 1, Count: 128, Ring: Ring{0x10000, 3, 512}, Port: 40001}, `
		01 0a 01 00  00 00 00 00  00 00 00 00  00 00 80 00
		00 00 01 00  00 00 00 00  03 00 00 00  00 02 00 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
		41 9c 00 00  00 00 00 00  00 00 00 00  00 00 00 00`},
	{"want", Record{Kind: KindWant, Count: 3}, `
		01 0b 00 00  00 00 00 00  00 00 00 00  00 00 03 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00`},
	{"recall", Record{Kind: KindRecall, Count: 2}, `
		01 0c 00 00  00 00 00 00  00 00 00 00  00 00 02 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00`},
	{"goaway", Record{Kind: KindGoAway, Opens: 77, Stage: StageFinal}, `
		01 0d 00 00  00 00 00 00  00 00 00 00  00 00 00 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
		00 00 00 00  00 00 00 00  4d 00 00 00  00 00 00 00
		00 00 03 00  00 00 00 00  00 00 00 00  00 00 00 00`},
	{"abort", Record{Kind: KindAbort, Epoch: 7, Number: 300, Code: Code(RuleEpoch)}, `
		01 0e 00 00  07 00 00 00  2c 01 00 00  0d 00 00 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
		00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00`},
}

// unhex returns the bytes of a hex dump.
func unhex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	require.NoError(t, err)
	return b
}

func TestRecordWire(t *testing.T) {
	seen := map[Kind]bool{}
	for _, tt := range wireRecords {
		want, got := unhex(t, tt.hex), make([]byte, RecordLen)
		require.NoError(t, tt.r.Put(got), tt.name)
		assert.Equal(t, want, got, tt.name)
		r, err := ParseRecord(want)
		require.NoError(t, err, tt.name)
		assert.Equal(t, tt.r, r, tt.name)
		kind, id := RecordHeader(want)
		assert.Equal(t, [...]any{r.Kind, r.Stream}, [...]any{kind, id}, tt.name)
		seen[tt.r.Kind] = true
	}
	assert.Len(t, seen, int(numKinds)-1, "an example of each kind")
}

func TestParseRecordRefuses(t *testing.T) {
	valid := map[Kind][]byte{}
	for _, tt := range wireRecords {
		valid[tt.r.Kind] = unhex(t, tt.hex)
	}
	for _, tt := range []struct {
		kind Kind
		at   int
		b    []byte // put at at
		want ProtocolError
	}{
		{KindOpen, 0, []byte{0}, ProtocolError{RuleVersion, 0, 0, 1}},
		{KindOpen, 0, []byte{2}, ProtocolError{RuleVersion, 0, 2, 1}},
		{KindOpen, 1, []byte{0}, ProtocolError{RuleKind, 0, 0, 14}},
		{KindOpen, 1, []byte{15}, ProtocolError{RuleKind, 0, 15, 14}},
		{KindOpen, 1, []byte{255}, ProtocolError{RuleKind, 0, 255, 14}},
		{KindOpen, 2, []byte{0, 0}, ProtocolError{RuleStream, 0, 0, 16383}},
		{KindOpen, 2, []byte{0, 0x40}, ProtocolError{RuleStream, 0, 16384, 16383}},
		{KindWant, 2, []byte{1, 0}, ProtocolError{RuleReserved, 0, hasStream, 0}},
		{KindOpen, 12, []byte{1, 0}, ProtocolError{RuleReserved, 0, hasCode, 0}},
		{KindOpen, 14, []byte{0, 1}, ProtocolError{RuleReserved, 0, hasCount, 0}},
		{KindFIN, 16, []byte{1}, ProtocolError{RuleReserved, 0, hasRing, 0}},
		{KindFIN, 24, []byte{1}, ProtocolError{RuleReserved, 0, hasRing, 0}},
		{KindFIN, 31, []byte{1}, ProtocolError{RuleReserved, 0, hasRing, 0}},
		{KindOpen, 32, []byte{1}, ProtocolError{RuleReserved, 0, hasTotal, 0}},
		{KindFIN, 40, []byte{1}, ProtocolError{RuleReserved, 0, hasOpens, 0}},
		{KindOpen, 44, []byte{1}, ProtocolError{RuleReserved, 0, hasSum, 0}},
		{KindFIN, 48, []byte{1}, ProtocolError{RuleReserved, 0, hasPort, 0}},
		{KindOpen, 50, []byte{1}, ProtocolError{RuleReserved, 0, hasStage, 0}},
		{KindOpen, 51, []byte{3}, ProtocolError{RuleReserved, 0, 3, 0}},
		{KindOpen, 63, []byte{9}, ProtocolError{RuleReserved, 0, 9, 0}},
		{KindOpen, 28, []byte{0, 0, 0, 0}, ProtocolError{RuleRing, 5, 0, MaxRing}},
		{KindOpen, 28, []byte{128, 0, 0, 0}, ProtocolError{RuleRing, 5, 128, MaxRing}},
		{KindOpen, 28, []byte{1, 16, 0, 0}, ProtocolError{RuleRing, 5, 4097, MaxRing}},
		{KindRing, 28, []byte{0, 0, 0, 8}, ProtocolError{RuleRing, 5, 128 << 20, MaxRing}},
		{KindOpen, 16, []byte{1, 0xf0, 255, 255, 255, 255, 255, 255}, ProtocolError{RuleRing, 5, 4096, MaxRing}},
		{KindPlaces, 16, []byte{0, 0x01, 255, 255, 255, 255, 255, 255}, ProtocolError{RuleRing, 1, 512, MaxRing}},
		{KindPlaces, 14, []byte{0, 0}, ProtocolError{RuleCount, 1, 0, 16383}},
		{KindPlaces, 14, []byte{0, 0x40}, ProtocolError{RuleCount, 1, 16384, 16383}},
		{KindPlaces, 2, []byte{0xff, 0x3f}, ProtocolError{RuleCount, 16383, 128, 1}},
		{KindWant, 14, []byte{0, 0}, ProtocolError{RuleCount, 0, 0, 16384}},
		{KindRecall, 14, []byte{255, 255}, ProtocolError{RuleCount, 0, 65535, 16384}},
		{KindRefused, 12, []byte{0, 0}, ProtocolError{RuleCode, 5, 0, 4}},
		{KindRefused, 12, []byte{5, 0}, ProtocolError{RuleCode, 5, 5, 4}},
		{KindReset, 12, []byte{0, 0}, ProtocolError{RuleCode, 5, 0, 7}},
		{KindReset, 12, []byte{8, 0}, ProtocolError{RuleCode, 5, 8, 7}},
		{KindAbort, 12, []byte{0, 0}, ProtocolError{RuleCode, 0, 0, 24}},
		{KindAbort, 12, []byte{25, 0}, ProtocolError{RuleCode, 0, 25, 24}},
		{KindAbort, 12, []byte{13, 1}, ProtocolError{RuleCode, 0, 269, 24}},
		{KindAbort, 2, []byte{1, 0}, ProtocolError{RuleReserved, 0, hasStream, 0}},
		{KindOpen, 48, []byte{0, 0}, ProtocolError{RulePort, 5, 0, math.MaxUint16}},
		{KindPlaces, 48, []byte{0, 0}, ProtocolError{RulePort, 1, 0, math.MaxUint16}},
		{KindPlaces, 48, []byte{0x81, 0xff}, ProtocolError{RulePort, 1, 0xff81, math.MaxUint16}},
		{KindGoAway, 50, []byte{0}, ProtocolError{RuleStage, 0, 0, 3}},
		{KindGoAway, 50, []byte{4}, ProtocolError{RuleStage, 0, 4, 3}},
	} {
		b := append([]byte(nil), valid[tt.kind]...)
		copy(b[tt.at:], tt.b)
		r, err := ParseRecord(b)
		requireViolation(t, tt.want, err)
		assert.Zero(t, r)
	}
	for _, n := range []int{0, 1, RecordLen - 1, RecordLen + 1} {
		_, err := ParseRecord(make([]byte, n))
		requireViolation(t, ProtocolError{RuleRecordLength, 0, uint64(n), RecordLen}, err)
	}
}

func TestPutRefuses(t *testing.T) {
	b := []byte(strings.Repeat("x", RecordLen))
	for _, r := range []Record{{}, {Kind: KindOpen}, {Kind: KindMoved}, {Kind: KindWant, Port: 1}, {Kind: numKinds}} {
		require.ErrorIs(t, r.Put(b), ring.ErrProtocol)
		require.Equal(t, strings.Repeat("x", RecordLen), string(b), "nothing is written")
	}
}

func TestKindString(t *testing.T) {
	assert.Equal(t, "OPEN", KindOpen.String())
	assert.Equal(t, "Kind(0)", Kind(0).String())
	assert.Equal(t, "ABORT", KindAbort.String())
	assert.Equal(t, "Kind(15)", numKinds.String())
}

func FuzzParseRecord(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseRecord(b)
		if err != nil {
			require.ErrorIs(t, err, ring.ErrProtocol)
			require.Zero(t, r)
			return
		}
		again := make([]byte, RecordLen)
		require.NoError(t, r.Put(again))
		require.Equal(t, b, again, "one encoding for each record")
	})
}
