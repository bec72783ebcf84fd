package cm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/doctest"
	"github.com/rdmanet/go-rdmanet/ring"
)

func protocolPage(t *testing.T) doctest.Page {
	t.Helper()
	return doctest.Read(t, "..", "PROTOCOL.md")
}

// The bytes that docs/PROTOCOL.md shows are the bytes that the code makes.
func TestDocumentedHandshakes(t *testing.T) {
	for name, h := range map[string]Handshake{
		"request": {
			Version: 1, MinVersion: 1, Features: FeatureWriteImm, Depth: 256,
			Addr: 0x7f2a10000000, RKey: 0x1a2b3c01, Size: 16384, MaxSize: 262144, Nonce: 0x0123456789abcdef,
		},
		"reply": {
			Version: 1, MinVersion: 1, Features: FeatureWriteImm, Depth: 256,
			Addr: 0x7e9c20000000, RKey: 0x3f4e5d07, Size: 16384, MaxSize: 262144, Nonce: 0xfedcba9876543210,
		},
	} {
		doc := protocolPage(t).Bytes(t, name)
		b, err := h.MarshalBinary()
		require.NoError(t, err)
		require.Equal(t, doc, b, name)
		parsed, err := ParseHandshake(doc)
		require.NoError(t, err)
		require.Equal(t, h, parsed, name)
	}
}

func TestDocumentedRefusal(t *testing.T) {
	r := Refusal{Version: 2, MinVersion: 2, Code: RefusedVersion, Text: "dialer is too old"}
	doc := protocolPage(t).Bytes(t, "refusal")
	b, err := r.MarshalBinary()
	require.NoError(t, err)
	require.Equal(t, doc, b)
	parsed, err := ParseRefusal(doc)
	require.NoError(t, err)
	require.Equal(t, r, parsed)
}

func TestDocumentedQPAddr(t *testing.T) {
	doc := protocolPage(t).Bytes(t, "qp address")
	require.Equal(t, doc, marshalQPAddr(t, sampleQPAddr()))
	parsed, err := ParseQPAddr(doc)
	require.NoError(t, err)
	require.Equal(t, sampleQPAddr(), parsed)
}

func TestDocumentedCredit(t *testing.T) {
	c := ring.Credit{Consumed: 768, Reposted: 320, Size: 16384}
	b := make([]byte, ring.CreditLen)
	c.Put(b)
	require.Equal(t, protocolPage(t).Bytes(t, "credit"), b)

	b = append(b, make([]byte, ring.KeyedCreditLen-ring.CreditLen)...)
	ring.Key{Size: 16384, RKey: 0x3f4e5d07}.Put(b)
	require.Equal(t, protocolPage(t).Bytes(t, "keyed credit"), b)
}

func TestDocumentedImmediates(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(protocolPage(t).Block(t, "immediates")), "\n")
	require.Len(t, lines, 8)
	for _, line := range lines {
		imm, text, ok := strings.Cut(line, "  ")
		require.True(t, ok, line)
		var v uint32
		_, err := fmt.Sscanf(imm, "0x%08x", &v)
		require.NoError(t, err, line)
		d, err := ring.ParseDoorbell(v)
		require.NoError(t, err, line)
		require.Equal(t, v, d.Imm(), line)
		want := d.Kind.String()
		if d.Kind == ring.KindData {
			want += fmt.Sprintf(" %d", d.Len)
		}
		if d.Grown {
			want += " grown"
		}
		require.Equal(t, want, text)
	}
}

func TestDocumentedFrames(t *testing.T) {
	sum := uint32(0)
	for _, f := range []struct{ name, text, bell string }{
		{"frame", "hello, ring\n", "0x10000020 (Data 32)"},
		{"next frame", "bye\n", "0x10000010 (Data 16)"},
	} {
		sum = ring.Checksum(sum, []byte(f.text))
		b := make([]byte, ring.FrameHeaderLen)
		ring.FrameHeader{Len: uint32(len(f.text)), Sum: sum}.Put(b)
		require.Equal(t, protocolPage(t).Bytes(t, f.name), append(b, f.text...))
		n := uint32(ring.FrameLen(len(f.text)))
		require.Equal(t, f.bell, fmt.Sprintf("%#x (Data %d)", ring.Doorbell{Kind: ring.KindData, Len: n}.FramedImm(), n))
		require.Contains(t, protocolPage(t).String(), f.bell)
	}
	fin := ring.Doorbell{Kind: ring.KindFIN, Len: sum & ring.SumBits}.FramedImm()
	require.Contains(t, protocolPage(t).String(), fmt.Sprintf("FIN is %#08x.", fin))
}

// The numbers that docs/PROTOCOL.md is full of are those of the code.
func TestDocumentedNumbers(t *testing.T) {
	require.EqualValues(t, 4096, ring.MinSize)
	require.EqualValues(t, 67108864, ring.MaxSize)
	require.EqualValues(t, 64, ring.MinDepth)
	require.EqualValues(t, 32768, ring.MaxDepth)
	require.EqualValues(t, 16, ring.ControlReserve)
	require.EqualValues(t, 256, ring.DataOffset)
	require.EqualValues(t, 0, ring.CreditOffset)
	require.EqualValues(t, 16, ring.CreditLen)
	require.EqualValues(t, 48, HandshakeSize)
	require.EqualValues(t, MaxConnectPrivateData, MaxHandshakeSize)
	require.EqualValues(t, 120, MaxRefusalText)
	require.EqualValues(t, 40, QPAddrSize)
	require.LessOrEqual(t, refusalHeader+MaxRefusalText, MaxRejectPrivateData)
	require.EqualValues(t, 1, Version)
	require.EqualValues(t, 1, MinVersion)
	require.EqualValues(t, 1, FeatureWriteImm)
	require.EqualValues(t, 2, FeatureRekey)
	require.EqualValues(t, 4, FeatureChecksum)
	require.EqualValues(t, 8, FeatureWantChecksum)
	require.EqualValues(t, 16, FeatureAcknowledge)
	require.EqualValues(t, 8, ring.FrameHeaderLen)
	require.EqualValues(t, 16, ring.FrameAlign)
	codes := []RefusalCode{RefusedVersion, RefusedMalformed, RefusedBusy, RefusedResources, RefusedNotPermitted, RefusedShutdown, RefusedChecksum, RefusedFailure}
	for i, c := range codes {
		require.EqualValues(t, i+1, c)
	}
}
