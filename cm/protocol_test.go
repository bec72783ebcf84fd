package cm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/doctest"
	"github.com/rdmanet/go-rdmanet/internal/protocol"
)

func protocolPage(t *testing.T) doctest.Page {
	t.Helper()
	return doctest.Read(t, "..", "PROTOCOL.md")
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

// The numbers that docs/PROTOCOL.md is full of are those of the code.
func TestDocumentedNumbers(t *testing.T) {
	require.EqualValues(t, 120, MaxRefusalText)
	require.EqualValues(t, 40, QPAddrSize)
	require.EqualValues(t, 1, protocol.Version)
	require.LessOrEqual(t, refusalHeader+MaxRefusalText, MaxRejectPrivateData)
	require.EqualValues(t, 4, FeatureChecksum)
	require.EqualValues(t, 8, FeatureWantChecksum)
	codes := []RefusalCode{RefusedVersion, RefusedMalformed, RefusedBusy, RefusedResources, RefusedNotPermitted, RefusedShutdown, RefusedChecksum, RefusedFailure}
	for i, c := range codes {
		require.EqualValues(t, i+1, c)
	}
}
