package hello

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/protocol"
	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// A Word is what the ends of a lane tell each other in the private data of the connection
// manager, in the request and in its answer. All is little-endian.
//
//	 0      4         5     6        8          12         16        24     28
//	+------+---------+-----+--------+----------+----------+---------+------+
//	| RDML | version | len | streams| features | receives | records | rkey |
//	+------+---------+-----+--------+----------+----------+---------+------+
//	 28       32      36      38   40        48
//	+--------+-------+-------+----+---------+
//	| places | epoch | lanes | 0  |  link   |
//	+--------+-------+-------+----+---------+
//
// Records is the address of the ring of records, places how many it holds. Streams is the
// highest id; the lower of both counts. Lanes is how many an end likes to spread the streams of
// a link over. The dialer draws the epoch, and the link once for all its lanes; the listener
// repeats both.
type Word struct {
	Streams   lane.ID
	WriteImm  bool        // the device has WRITE_WITH_IMM; else a SEND follows each WRITE
	Checksums cm.Features // whether it knows them and wants them, and nothing else
	Receives  int
	Records   uint64
	RKey      uint32
	Places    int
	Epoch     uint32
	Lanes     int
	Link      LinkID
}

// MaxLanes bounds Word.Lanes.
const MaxLanes = 8

const (
	magic   = "RDML"
	wordLen = 48

	featureWriteImm  = 1 << 0
	featureChecksums = cm.FeatureChecksum | cm.FeatureWantChecksum // bits 2 and 3
)

var (
	// ErrMalformed is a first word that no end of a lane says.
	ErrMalformed = errors.New("malformed first word")
	// errVersion is a first word of another version.
	errVersion = driver.Explain("first word of another version", cm.ErrVersion)
)

// Encode encodes w.
func (w *Word) Encode() []byte {
	b := make([]byte, wordLen)
	copy(b, magic)
	b[4], b[5] = protocol.Version, wordLen
	le := binary.LittleEndian
	le.PutUint16(b[6:], uint16(w.Streams))
	features := uint32(w.Checksums)
	if w.WriteImm {
		features |= featureWriteImm
	}
	le.PutUint32(b[8:], features)
	le.PutUint32(b[12:], uint32(w.Receives))
	le.PutUint64(b[16:], w.Records)
	le.PutUint32(b[24:], w.RKey)
	le.PutUint32(b[28:], uint32(w.Places))
	le.PutUint32(b[32:], w.Epoch)
	le.PutUint16(b[36:], uint16(w.Lanes))
	le.PutUint64(b[40:], uint64(w.Link))
	return b
}

// Parse decodes private data, which may be padded with zeros.
func Parse(b []byte) (w Word, err error) {
	switch {
	case len(b) < 6 || string(b[:4]) != magic:
		return w, fmt.Errorf("%w: the peer speaks another protocol", ErrMalformed)
	case b[4] != protocol.Version:
		return w, driver.Explain(fmt.Sprintf("no common protocol version: the peer has %d, this end %d (update the older one)", b[4], protocol.Version), errVersion)
	case b[5] != wordLen || len(b) < wordLen:
		return w, fmt.Errorf("%w: %d bytes of %d", ErrMalformed, len(b), b[5])
	}
	for i, v := range b {
		if v != 0 && (i == 38 || i == 39 || i >= wordLen) {
			return w, fmt.Errorf("%w: byte %d is not zero", ErrMalformed, i)
		}
	}
	le := binary.LittleEndian
	features := le.Uint32(b[8:])
	w = Word{
		Streams: lane.ID(le.Uint16(b[6:])), WriteImm: features&featureWriteImm != 0,
		Checksums: cm.Features(features) & featureChecksums,
		Receives:  int(le.Uint32(b[12:])), Records: le.Uint64(b[16:]), RKey: le.Uint32(b[24:]),
		Places: int(le.Uint32(b[28:])), Epoch: le.Uint32(b[32:]),
		Lanes: int(le.Uint16(b[36:])), Link: LinkID(le.Uint64(b[40:])),
	}
	switch {
	case features&^uint32(featureWriteImm|featureChecksums) != 0:
		return w, fmt.Errorf("%w: features %#x", ErrMalformed, features)
	case w.Checksums == cm.FeatureWantChecksum:
		return w, fmt.Errorf("%w: it wants checksums that it does not know", ErrMalformed)
	case w.Streams == 0 || w.Streams > lane.MaxStream:
		return w, fmt.Errorf("%w: %d streams", ErrMalformed, w.Streams)
	case w.Receives < lane.MinDepth || w.Receives > lane.MaxDepth:
		return w, fmt.Errorf("%w: %d receives", ErrMalformed, w.Receives)
	case w.Places < lane.MinPlaces || w.Places > lane.MaxPlaces || w.Places&(w.Places-1) != 0:
		return w, fmt.Errorf("%w: %d places for records", ErrMalformed, w.Places)
	case w.Lanes == 0 || w.Lanes > MaxLanes:
		return w, fmt.Errorf("%w: %d lanes", ErrMalformed, w.Lanes)
	case w.Link == 0:
		return w, fmt.Errorf("%w: a lane of no link", ErrMalformed)
	case w.Records+uint64(w.Places*lane.RecordLen) < w.Records:
		return w, fmt.Errorf("%w: records at %#x", ErrMalformed, w.Records)
	}
	return w, nil
}

// Match returns an error if the two ends cannot share a lane.
func (w *Word) Match(peer *Word) error {
	if w.WriteImm != peer.WriteImm {
		return fmt.Errorf("%w: one end rings doorbells with WRITE_WITH_IMM and the other with SEND", ErrMalformed)
	}
	_, err := cm.Checksums(w.Checksums, peer.Checksums)
	return err
}

// Agreed returns what the ends of a lane reckon with: the records that either ring of records
// holds, and the receives of both, of which those beyond four for each record are not used
// (see lane.Config). Both ends come to the same.
func (w *Word) Agreed(peer *Word) (records, own, theirs int) {
	records = min(w.Places, peer.Places)
	return records, min(w.Receives, 4*records), min(peer.Receives, 4*records)
}
