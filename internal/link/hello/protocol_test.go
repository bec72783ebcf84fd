package hello

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/doctest"
	"github.com/rdmanet/go-rdmanet/internal/protocol"
)

// The bytes that docs/PROTOCOL.md shows are the bytes that the code makes.
func TestDocumentedHello(t *testing.T) {
	w := Word{
		Streams: 8192, WriteImm: true, Receives: 512,
		Records: 0x7f2a10000000, RKey: 0x1a2b3c01, Places: 128, Epoch: 0x5eed0001,
		Lanes: 8, Link: 0x77665544332211aa, Checksums: cm.FeatureChecksum,
	}
	doc := doctest.Read(t, "../../..", "PROTOCOL.md").Bytes(t, "first word")
	require.Equal(t, doc, w.Encode())
	parsed, err := Parse(doc)
	require.NoError(t, err)
	require.Equal(t, w, parsed)
}

// The numbers of the page are those of the code.
func TestDocumentedNumbers(t *testing.T) {
	require.EqualValues(t, 48, wordLen)
	require.EqualValues(t, 8, MaxLanes)
	require.EqualValues(t, 1, protocol.Version)
	require.EqualValues(t, 1, featureWriteImm)
	require.EqualValues(t, 1<<2|1<<3, featureChecksums)
}

// A dialer compares the versions of a refusal with the one of its first word.
func TestRefusalHasVersionOfFirstWord(t *testing.T) {
	speaks := (&Word{}).Encode()[4]
	r := cm.NewRefusal(cm.RefusedVersion, "")
	require.Equal(t, speaks, r.Version)
	require.Equal(t, speaks, r.MinVersion)
	theirs := cm.RefusedError{Refusal: cm.Refusal{Version: speaks + 1, MinVersion: speaks + 1, Code: cm.RefusedVersion}}
	require.EqualError(t, &theirs, fmt.Sprintf("the peer refuses: no common protocol version, it speaks version %d, this end %d", speaks+1, speaks))
}
