package cm

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring"
)

func sampleHandshake() Handshake {
	return Handshake{
		Version: 1, MinVersion: 1, Features: FeatureWriteImm, Depth: 256,
		Addr: 0x7f2a10000000, RKey: 0x1a2b3c01, Size: 16384, MaxSize: 262144, Nonce: 42,
	}
}

func mustMarshal(t testing.TB, h Handshake) []byte {
	b, err := h.MarshalBinary()
	require.NoError(t, err)
	return b
}

func TestHandshakeRoundTrip(t *testing.T) {
	top := uint64(math.MaxUint64 - ring.DataOffset - ring.MinSize)
	for name, change := range map[string]func(*Handshake){
		"usual":             func(*Handshake) {},
		"no features":       func(h *Handshake) { h.Features = 0 },
		"unknown features":  func(h *Handshake) { h.Features = math.MaxUint32 },
		"smallest":          func(h *Handshake) { h.Size, h.MaxSize, h.Depth = ring.MinSize, ring.MinSize, ring.MinDepth },
		"largest":           func(h *Handshake) { h.Size, h.MaxSize, h.Depth = ring.MaxSize, ring.MaxSize, ring.MaxDepth },
		"zero-based memory": func(h *Handshake) { h.Addr, h.RKey, h.Nonce = 0, 0, 0 },
		"highest memory":    func(h *Handshake) { h.Addr, h.Size, h.MaxSize = top, ring.MinSize, ring.MinSize },
		"newer peer":        func(h *Handshake) { h.Version = 9 },
	} {
		t.Run(name, func(t *testing.T) {
			h := sampleHandshake()
			change(&h)
			b := mustMarshal(t, h)
			require.Len(t, b, HandshakeSize)
			for _, pad := range []int{0, 1, 8, MaxAcceptPrivateData - HandshakeSize} {
				got, err := ParseHandshake(append(b, make([]byte, pad)...))
				require.NoError(t, err, "padded by %d", pad)
				require.Equal(t, h, got)
			}
			appended, err := h.AppendBinary([]byte("x"))
			require.NoError(t, err)
			require.Equal(t, append([]byte("x"), b...), appended)
		})
	}
}

// Every field is checked, by the encoder as by the decoder.
func TestHandshakeFieldsAreChecked(t *testing.T) {
	for want, change := range map[string]func(*Handshake){
		"versions 0 to 1":                                func(h *Handshake) { h.MinVersion = 0 },
		"versions 0 to 0":                                func(h *Handshake) { h.Version, h.MinVersion = 0, 0 },
		"versions 2 to 1":                                func(h *Handshake) { h.MinVersion = 2 },
		"depth 63 is not within 64 to 32768":             func(h *Handshake) { h.Depth = ring.MinDepth - 1 },
		"depth 32769 is not within 64 to 32768":          func(h *Handshake) { h.Depth = ring.MaxDepth + 1 },
		"ring size 0 is not a power of two":              func(h *Handshake) { h.Size = 0 },
		"ring size 2048 is not":                          func(h *Handshake) { h.Size = ring.MinSize / 2 },
		"ring size 16385 is not":                         func(h *Handshake) { h.Size++ },
		"ring size 134217728 is not":                     func(h *Handshake) { h.Size = 2 * ring.MaxSize },
		"largest ring size 262145 is not":                func(h *Handshake) { h.MaxSize++ },
		"largest ring size 134217728 is not":             func(h *Handshake) { h.MaxSize = 2 * ring.MaxSize },
		"largest ring size 8192 is less than":            func(h *Handshake) { h.MaxSize = 8192 },
		"wants checksums that it does not know":          func(h *Handshake) { h.Features |= FeatureWantChecksum },
		"at 0xfffffffffffbff00 leaves the address space": func(h *Handshake) { h.Addr = math.MaxUint64 - ring.DataOffset - 262144 + 1 },
		"at 0xffffffffffffffff leaves the address space": func(h *Handshake) { h.Addr = math.MaxUint64 },
	} {
		t.Run(want, func(t *testing.T) {
			good := sampleHandshake()
			h := good
			change(&h)
			prefix := []byte("x")
			b, err := h.AppendBinary(prefix)
			requireMalformed(t, err, want)
			require.Equal(t, prefix, b)

			b = mustMarshal(t, good)
			b[4], b[5] = h.Version, h.MinVersion
			binary.LittleEndian.PutUint32(b[8:], uint32(h.Features))
			binary.LittleEndian.PutUint32(b[12:], h.Depth)
			binary.LittleEndian.PutUint64(b[16:], h.Addr)
			binary.LittleEndian.PutUint32(b[28:], h.Size)
			binary.LittleEndian.PutUint32(b[32:], h.MaxSize)
			_, err = ParseHandshake(b)
			requireMalformed(t, err, want)
		})
	}
}

func requireMalformed(t *testing.T, err error, want string) {
	t.Helper()
	var me *MalformedError
	require.ErrorAs(t, err, &me)
	require.ErrorIs(t, err, ErrProtocol)
	require.ErrorContains(t, err, want)
}

func TestHandshakeBytesAreChecked(t *testing.T) {
	good := mustMarshal(t, sampleHandshake())
	with := func(offset int, c byte) []byte {
		b := append([]byte(nil), good...)
		b[offset] = c
		return b
	}
	newer := func(length byte, n int) []byte {
		b := append(append([]byte(nil), good...), make([]byte, n-len(good))...)
		b[4], b[6] = 2, length
		return b
	}
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"nothing", nil, "0 bytes"},
		{"seven bytes", good[:7], "7 bytes"},
		{"eight bytes", good[:8], "cut off at 8 of 48 bytes"},
		{"one byte short", good[:47], "cut off at 47 of 48 bytes"},
		{"another protocol", with(3, 'A'), "speaks another protocol"},
		{"all zeros", make([]byte, 56), "speaks another protocol"},
		{"length 0", with(6, 0), "length 0 in version 1"},
		{"length 47", with(6, 47), "length 47 in version 1"},
		{"length 49 in version 1", append(with(6, 49), 0), "length 49 in version 1"},
		{"length 57", newer(57, 64), "length 57 in version 2"},
		{"newer, cut off", newer(56, 55), "cut off at 55 of 56 bytes"},
		{"reserved byte", with(7, 1), "reserved"},
		{"reserved word", with(39, 1), "reserved"},
		{"garbage behind", append(append([]byte(nil), good...), 0, 0, 7), "byte 0x07 at offset 50"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseHandshake(c.b)
			requireMalformed(t, err, c.want)
		})
	}
}

// TestChecksums has every pair of ends.
func TestChecksums(t *testing.T) {
	const (
		old   = FeatureWriteImm | FeatureRekey
		knows = old | FeatureChecksum
		wants = knows | FeatureWantChecksum
	)
	for _, c := range []struct {
		a, b Features
		on   bool
		err  error
	}{
		{old, old, false, nil},
		{old, knows, false, nil},
		{old, wants, false, ErrNoChecksum},
		{knows, knows, false, nil},
		{knows, wants, true, nil},
		{wants, wants, true, nil},
	} {
		for range 2 {
			on, err := Checksums(c.a, c.b)
			require.Equal(t, c.on, on, "%b %b", c.a, c.b)
			require.ErrorIs(t, err, c.err)
			c.a, c.b = c.b, c.a // both ends come to the same
		}
	}
}

// A newer peer that still speaks version 1 is understood, whatever it adds.
func TestHandshakeOfANewerPeer(t *testing.T) {
	want := sampleHandshake()
	want.Version = 3
	b := append(mustMarshal(t, want), 1, 2, 3, 4, 5, 6, 7, 8)
	b[6], b[7], b[36] = 56, 0xff, 0xff
	got, err := ParseHandshake(b)
	require.NoError(t, err)
	require.Equal(t, want, got)
	v, err := Negotiate(sampleHandshake(), got)
	require.NoError(t, err)
	require.EqualValues(t, 1, v)
}

// Of one that does not, nothing is looked at but its versions.
func TestHandshakeOfAMuchNewerPeer(t *testing.T) {
	h, err := ParseHandshake([]byte{'R', 'D', 'M', 'N', 4, 2, 200, 0xff, 0xff})
	require.ErrorIs(t, err, ErrVersion)
	require.Equal(t, &VersionError{LocalMin: 1, LocalMax: 1, PeerMin: 2, PeerMax: 4}, err)
	require.EqualError(t, err, "cm: no common protocol version: this end speaks 1, the peer 2 to 4; update the older one")
	require.Equal(t, Handshake{Version: 4, MinVersion: 2}, h)
}

func TestNegotiate(t *testing.T) {
	type versions struct{ low, high uint8 }
	for _, c := range []struct {
		a, b versions
		want uint8 // 0: none
	}{
		{versions{1, 1}, versions{1, 1}, 1},
		{versions{1, 3}, versions{1, 2}, 2},
		{versions{2, 3}, versions{1, 2}, 2},
		{versions{1, 255}, versions{255, 255}, 255},
		{versions{1, 1}, versions{2, 2}, 0},
		{versions{3, 4}, versions{1, 2}, 0},
		{versions{0, 0}, versions{0, 0}, 0},
	} {
		a := Handshake{MinVersion: c.a.low, Version: c.a.high}
		b := Handshake{MinVersion: c.b.low, Version: c.b.high}
		for range 2 { // both ends come to the same
			got, err := Negotiate(a, b)
			require.Equal(t, c.want, got)
			if c.want == 0 {
				require.Equal(t, &VersionError{a.MinVersion, a.Version, b.MinVersion, b.Version}, err)
			} else {
				require.NoError(t, err)
			}
			a, b = b, a
		}
	}
}

func FuzzParseHandshake(f *testing.F) {
	f.Add(mustMarshal(f, sampleHandshake()))
	f.Add([]byte(handshakeMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHandshake(b)
		if err != nil {
			if fmt.Sprint(err) == "" {
				t.Fatal("an error without text")
			}
			return
		}
		// What was accepted can be sent, means the same, and is in bounds.
		again, err := ParseHandshake(mustMarshal(t, h))
		require.NoError(t, err)
		require.Equal(t, h, again)
		require.LessOrEqual(t, h.Size, h.MaxSize)
		require.LessOrEqual(t, h.MaxSize, uint32(ring.MaxSize))
		require.GreaterOrEqual(t, h.Addr+ring.DataOffset+uint64(h.MaxSize), h.Addr)
		_, err = ring.NewSender(h.Size, h.MaxSize, h.Depth)
		require.NoError(t, err)
	})
}
