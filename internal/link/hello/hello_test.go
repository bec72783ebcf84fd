package hello

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
)

var someWord = Word{Streams: 77, WriteImm: true, Receives: 512, Records: 0x1122334455667788, RKey: 0x99aabbcc, Places: 64, Epoch: 0xddeeff00, Lanes: 3, Link: 0xa1a2a3a4a5a6a7a8, Checksums: cm.FeatureChecksum | cm.FeatureWantChecksum}

func TestHello(t *testing.T) {
	b := someWord.Encode()
	require.Len(t, b, wordLen)
	w, err := Parse(append(b, make([]byte, 16)...))
	require.NoError(t, err)
	require.Equal(t, someWord, w)

	for name, f := range map[string]func(b []byte) []byte{
		"cut off":                               func(b []byte) []byte { return b[:wordLen-1] },
		"empty":                                 func(b []byte) []byte { return nil },
		"magic":                                 func(b []byte) []byte { b[0]++; return b },
		"length":                                func(b []byte) []byte { b[5]++; return b },
		"streams":                               func(b []byte) []byte { b[7] = 0xff; return b },
		"no streams":                            func(b []byte) []byte { b[6], b[7] = 0, 0; return b },
		"features":                              func(b []byte) []byte { b[11] = 1; return b },
		"wants checksums that it does not know": func(b []byte) []byte { b[8] &^= 1 << 2; return b },
		"receives":                              func(b []byte) []byte { b[15] = 1; return b },
		"few receives":                          func(b []byte) []byte { b[12], b[13] = 1, 0; return b },
		"places":                                func(b []byte) []byte { b[28] = 65; return b },
		"records":                               func(b []byte) []byte { copy(b[16:24], "\xff\xff\xff\xff\xff\xff\xff\xff"); return b },
		"not zero":                              func(b []byte) []byte { b[39] = 1; return b },
		"no lanes":                              func(b []byte) []byte { b[36] = 0; return b },
		"lanes":                                 func(b []byte) []byte { b[36] = MaxLanes + 1; return b },
		"no link":                               func(b []byte) []byte { clear(b[40:48]); return b },
		"behind it":                             func(b []byte) []byte { return append(b, 0, 1) },
		"other version":                         func(b []byte) []byte { b[4]++; return b },
	} {
		_, err := Parse(f(someWord.Encode()))
		require.Error(t, err, name)
		if name == "other version" {
			require.ErrorIs(t, err, errVersion)
		} else {
			require.ErrorIs(t, err, ErrMalformed, name)
			require.ErrorContains(t, err, "malformed first word: ", name)
		}
	}

	other := someWord
	other.WriteImm = false
	err = someWord.Match(&other)
	require.ErrorIs(t, err, ErrMalformed)
	require.ErrorContains(t, err, "one end rings doorbells with WRITE_WITH_IMM and the other with SEND")
	require.NoError(t, someWord.Match(&someWord))
}

func FuzzHello(f *testing.F) {
	f.Add(someWord.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := Parse(b)
		if err != nil {
			return
		}
		require.Equal(t, b[:wordLen], w.Encode())
		for _, v := range b[wordLen:] {
			require.Zero(t, v)
		}
	})
}
