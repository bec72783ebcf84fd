package ring

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeyWire(t *testing.T) {
	k := Key{Size: 0x01020304, RKey: 0xa1b2c3d4}
	b := make([]byte, KeyedCreditLen+1)
	k.Put(b)
	require.Equal(t, make([]byte, CreditLen), b[:CreditLen], "the credit before it is not touched")
	require.Equal(t, []byte{4, 3, 2, 1, 0xd4, 0xc3, 0xb2, 0xa1, 0}, b[CreditLen:])
	require.Equal(t, k, KeyFromWord(binary.LittleEndian.Uint64(b[CreditLen:])))
	require.Equal(t, k, KeyFromWord(k.Word()))
	require.Panics(t, func() { k.Put(b[: KeyedCreditLen-1 : KeyedCreditLen-1]) })
}
