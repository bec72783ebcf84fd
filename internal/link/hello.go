package link

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// hello is what the ends of a lane tell each other in the private data of the connection
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
type hello struct {
	streams   lane.ID
	writeImm  bool        // the device has WRITE_WITH_IMM; else a SEND follows each WRITE
	checksums cm.Features // whether it knows them and wants them, and nothing else
	receives  int
	records   uint64
	rkey      uint32
	places    int
	epoch     uint32
	lanes     int
	link      linkID
}

const (
	helloMagic   = "RDML"
	helloVersion = 1
	helloLen     = 48

	featureWriteImm  = 1 << 0
	featureChecksums = cm.FeatureChecksum | cm.FeatureWantChecksum // bits 2 and 3
)

var (
	// errHello is a first word that no end of a lane says.
	errHello = errors.New("malformed first word")
	// errVersion is a first word of another version.
	errVersion = verbs.Explain("first word of another version", cm.ErrVersion)
)

// put encodes h.
func (h *hello) put() []byte {
	b := make([]byte, helloLen)
	copy(b, helloMagic)
	b[4], b[5] = helloVersion, helloLen
	le := binary.LittleEndian
	le.PutUint16(b[6:], uint16(h.streams))
	features := uint32(h.checksums)
	if h.writeImm {
		features |= featureWriteImm
	}
	le.PutUint32(b[8:], features)
	le.PutUint32(b[12:], uint32(h.receives))
	le.PutUint64(b[16:], h.records)
	le.PutUint32(b[24:], h.rkey)
	le.PutUint32(b[28:], uint32(h.places))
	le.PutUint32(b[32:], h.epoch)
	le.PutUint16(b[36:], uint16(h.lanes))
	le.PutUint64(b[40:], uint64(h.link))
	return b
}

// parseHello decodes private data, which may be padded with zeros.
func parseHello(b []byte) (h hello, err error) {
	switch {
	case len(b) < 6 || string(b[:4]) != helloMagic:
		return h, fmt.Errorf("%w: the peer speaks another protocol", errHello)
	case b[4] != helloVersion:
		return h, verbs.Explain(fmt.Sprintf("no common protocol version: the peer has %d, this end %d (update the older one)", b[4], helloVersion), errVersion)
	case b[5] != helloLen || len(b) < helloLen:
		return h, fmt.Errorf("%w: %d bytes of %d", errHello, len(b), b[5])
	}
	for i, v := range b {
		if v != 0 && (i == 38 || i == 39 || i >= helloLen) {
			return h, fmt.Errorf("%w: byte %d is not zero", errHello, i)
		}
	}
	le := binary.LittleEndian
	features := le.Uint32(b[8:])
	h = hello{
		streams: lane.ID(le.Uint16(b[6:])), writeImm: features&featureWriteImm != 0,
		checksums: cm.Features(features) & featureChecksums,
		receives:  int(le.Uint32(b[12:])), records: le.Uint64(b[16:]), rkey: le.Uint32(b[24:]),
		places: int(le.Uint32(b[28:])), epoch: le.Uint32(b[32:]),
		lanes: int(le.Uint16(b[36:])), link: linkID(le.Uint64(b[40:])),
	}
	switch {
	case features&^uint32(featureWriteImm|featureChecksums) != 0:
		return h, fmt.Errorf("%w: features %#x", errHello, features)
	case h.checksums == cm.FeatureWantChecksum:
		return h, fmt.Errorf("%w: it wants checksums that it does not know", errHello)
	case h.streams == 0 || h.streams > lane.MaxStream:
		return h, fmt.Errorf("%w: %d streams", errHello, h.streams)
	case h.receives < lane.MinDepth || h.receives > lane.MaxDepth:
		return h, fmt.Errorf("%w: %d receives", errHello, h.receives)
	case h.places < lane.MinPlaces || h.places > lane.MaxPlaces || h.places&(h.places-1) != 0:
		return h, fmt.Errorf("%w: %d places for records", errHello, h.places)
	case h.lanes == 0 || h.lanes > MaxLanes:
		return h, fmt.Errorf("%w: %d lanes", errHello, h.lanes)
	case h.link == 0:
		return h, fmt.Errorf("%w: a lane of no link", errHello)
	case h.records+uint64(h.places*lane.RecordLen) < h.records:
		return h, fmt.Errorf("%w: records at %#x", errHello, h.records)
	}
	return h, nil
}

// meet checks what the two ends have to have in common.
func (h *hello) meet(peer *hello) error {
	if h.writeImm != peer.writeImm {
		return fmt.Errorf("%w: one end rings doorbells with WRITE_WITH_IMM and the other with SEND", errHello)
	}
	_, err := cm.Checksums(h.checksums, peer.checksums)
	return err
}

// agreed returns what the ends of a lane reckon with: the records that either ring of records
// holds, and the receives of both, of which those beyond four for each record are not used
// (lane.Slots). Both ends come to the same.
func (h *hello) agreed(peer *hello) (records, own, theirs int) {
	records = min(h.places, peer.places)
	return records, min(h.receives, 4*records), min(peer.receives, 4*records)
}
