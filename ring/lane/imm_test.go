package lane

import (
	"testing"

	"github.com/rdmanet/go-rdmanet/ring"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// requireViolation checks the detail of a protocol error, and what it matches.
func requireViolation(t testing.TB, want ProtocolError, err error) {
	t.Helper()
	require.ErrorIs(t, err, ring.ErrProtocol)
	require.ErrorIs(t, err, want.Rule)
	require.NotErrorIs(t, err, ring.ErrConfig)
	var detail *ProtocolError
	require.ErrorAs(t, err, &detail)
	require.Equal(t, want, *detail)
}

func TestDoorbellWire(t *testing.T) {
	// The values are written out: they are the wire, and must not follow the code.
	for _, tt := range []struct {
		imm uint32
		d   Doorbell
	}{
		{0x40010001, Doorbell{TypeData, 1, 1}},
		{0x40010000, Doorbell{TypeData, 1, 65536}},
		{0x4001ffff, Doorbell{TypeData, 1, 65535}},
		{0x7fff0000, Doorbell{TypeData, 16383, 65536}},
		{0x52340064, Doorbell{TypeData, 0x1234, 100}},
		{0x80010001, Doorbell{TypeCredit, 1, 1}},
		{0xbfffffff, Doorbell{TypeCredit, 16383, 65535}},
		{0xd0000001, Doorbell{TypeSlots, 0, 1}},
		{0xd000ffff, Doorbell{TypeSlots, 0, 65535}},
		{0xe0000000, Doorbell{Type: TypeControl}},
	} {
		assert.Equal(t, tt.imm, tt.d.Imm(), "%+v", tt.d)
		d, err := ParseDoorbell(tt.imm)
		require.NoError(t, err, "%#x", tt.imm)
		assert.Equal(t, tt.d, d)
	}
}

func TestParseDoorbellRefuses(t *testing.T) {
	for _, tt := range []struct {
		imm  uint32
		want ProtocolError
	}{
		{0x00000000, ProtocolError{RuleType, 0, 0, 0}},
		{0x3fffffff, ProtocolError{RuleType, 0, 0x3fffffff, 0}},
		{0x40000001, ProtocolError{RuleStream, 0, 0, 16383}},
		{0x40000000, ProtocolError{RuleStream, 0, 0, 16383}},
		{0x80000001, ProtocolError{RuleStream, 0, 0, 16383}},
		{0x80050000, ProtocolError{RuleNothing, 5, 0, 65535}},
		{0xc0000000, ProtocolError{RuleType, 0, 0, 2}},
		{0xc0000001, ProtocolError{RuleType, 0, 0, 2}},
		{0xf0000000, ProtocolError{RuleType, 0, 3, 2}},
		{0xffffffff, ProtocolError{RuleType, 0, 3, 2}},
		{0xd0000000, ProtocolError{RuleNothing, 0, 0, 65535}},
		{0xd0010001, ProtocolError{RuleReserved, 0, 0x10001, 0}},
		{0xdfff0000, ProtocolError{RuleReserved, 0, 0xfff0000, 0}},
		{0xe0000001, ProtocolError{RuleReserved, 0, 1, 0}},
		{0xe8000000, ProtocolError{RuleReserved, 0, 0x8000000, 0}},
	} {
		d, err := ParseDoorbell(tt.imm)
		requireViolation(t, tt.want, err)
		assert.Zero(t, d)
		assert.Equal(t, ScopeLane, tt.want.Rule.Scope())
	}
}

func TestImmOfImpossibleDoorbell(t *testing.T) {
	for _, d := range []Doorbell{
		{},
		{Type: TypeData, N: 1},
		{Type: TypeData, Stream: 1},
		{Type: TypeData, Stream: 1, N: MaxMessage + 1},
		{Type: TypeData, Stream: MaxStream + 1, N: 1},
		{Type: TypeData, Stream: 1<<16 - 1, N: 1},
		{Type: TypeCredit, Stream: 1},
		{Type: TypeCredit, Stream: 1, N: 1 << 16},
		{Type: TypeSlots},
		{Type: TypeSlots, N: 1 << 16},
		{Type: TypeSlots, Stream: 1, N: 1},
		{Type: TypeControl, N: 1},
		{Type: TypeControl, Stream: 1},
		{Type: 5, Stream: 1, N: 1},
		{Type: 255},
	} {
		assert.Zero(t, d.Imm(), "%+v", d)
	}
}

func TestTypeString(t *testing.T) {
	for k, want := range map[Type]string{
		TypeData: "Data", TypeCredit: "Credit", TypeSlots: "Slots", TypeControl: "Control", 0: "Type(0)", 255: "Type(255)",
	} {
		assert.Equal(t, want, k.String())
	}
}

func FuzzParseDoorbell(f *testing.F) {
	f.Fuzz(func(t *testing.T, imm uint32) {
		d, err := ParseDoorbell(imm)
		if err != nil {
			require.ErrorIs(t, err, ring.ErrProtocol)
			require.Zero(t, d)
			return
		}
		require.Equal(t, imm, d.Imm(), "one encoding for each doorbell")
		require.Equal(t, d.Type == TypeControl, d.N == 0)
		require.LessOrEqual(t, d.N, uint32(MaxMessage))
		require.Equal(t, d.Type <= TypeCredit, d.Stream != 0)
	})
}
