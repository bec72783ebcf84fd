package ring

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDoorbellWire(t *testing.T) {
	// The values are written out: they are the wire, and must not follow the code.
	for _, tt := range []struct {
		imm uint32
		d   Doorbell
	}{
		{0x10000001, Doorbell{Kind: KindData, Len: 1}},
		{0x10010000, Doorbell{Kind: KindData, Len: 65536}},
		{0x14000000, Doorbell{Kind: KindData, Len: 64 << 20}},
		{0x18000001, Doorbell{Kind: KindData, Len: 1, Grown: true}},
		{0x1c000000, Doorbell{Kind: KindData, Len: 64 << 20, Grown: true}},
		{0x20000000, Doorbell{Kind: KindCredit}},
		{0x30000000, Doorbell{Kind: KindFIN}},
		{0x40000000, Doorbell{Kind: KindClose}},
		{0x50000000, Doorbell{Kind: KindReset}},
		{0x60000000, Doorbell{Kind: KindKeepAlive}},
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
		{0x00000000, ProtocolError{"doorbell of unknown kind", 0, 6}},
		{0x00000001, ProtocolError{"doorbell of unknown kind", 0, 6}},
		{0x70000000, ProtocolError{"doorbell of unknown kind", 7, 6}},
		{0xffffffff, ProtocolError{"doorbell of unknown kind", 15, 6}},
		{0x10000000, ProtocolError{"data doorbell of length zero", 0, MaxSize}},
		{0x18000000, ProtocolError{"data doorbell of length zero", 0, MaxSize}},
		{0x14000001, ProtocolError{"data doorbell longer than any ring", MaxSize + 1, MaxSize}},
		{0x1fffffff, ProtocolError{"data doorbell longer than any ring", 1<<27 - 1, MaxSize}},
		{0x20000001, ProtocolError{"length on a doorbell without data", 1, 0}},
		{0x38000000, ProtocolError{"grown bit on a doorbell without data", 1, 0}},
		{0x6fffffff, ProtocolError{"grown bit on a doorbell without data", 1, 0}},
	} {
		d, err := ParseDoorbell(tt.imm)
		requireViolation(t, tt.want, err)
		assert.Zero(t, d)
	}
}

func TestImmOfImpossibleDoorbell(t *testing.T) {
	for _, d := range []Doorbell{
		{},
		{Len: 1},
		{Kind: KindData},
		{Kind: KindData, Grown: true},
		{Kind: KindData, Len: MaxSize + 1},
		{Kind: KindData, Len: 1<<32 - 1},
		{Kind: KindCredit, Len: 1},
		{Kind: KindFIN, Grown: true},
		{Kind: 7},
		{Kind: 255},
	} {
		assert.Zero(t, d.Imm(), "%+v", d)
	}
}

func TestKindString(t *testing.T) {
	for k, want := range map[Kind]string{
		KindData: "Data", KindCredit: "Credit", KindFIN: "FIN", KindClose: "Close",
		KindReset: "Reset", KindKeepAlive: "KeepAlive", KindCorrupt: "Corrupt", 0: "Kind(0)", 8: "Kind(8)", 255: "Kind(255)",
	} {
		assert.Equal(t, want, k.String())
	}
}

func FuzzParseDoorbell(f *testing.F) {
	for _, imm := range []uint32{0, 0x10000001, 0x14000000, 0x14000001, 0x18001000, 0x20000000, 0x28000000, 0x60000000, 0x70000000, 1<<32 - 1} {
		f.Add(imm)
	}
	f.Fuzz(func(t *testing.T, imm uint32) {
		d, err := ParseDoorbell(imm)
		if err != nil {
			require.ErrorIs(t, err, ErrProtocol)
			require.Zero(t, d)
			return
		}
		require.Equal(t, imm, d.Imm(), "one encoding for each doorbell")
		require.LessOrEqual(t, d.Len, uint32(MaxSize))
		require.Equal(t, d.Kind == KindData, d.Len > 0)
		require.True(t, d.Kind == KindData || !d.Grown)
	})
}

func BenchmarkDoorbell(b *testing.B) {
	b.ReportAllocs()
	for i := uint32(0); b.Loop(); i++ {
		if _, err := ParseDoorbell(Doorbell{Kind: KindData, Len: i&0xffff + 1}.Imm()); err != nil {
			b.Fatal(err)
		}
	}
}
