package ring

// Doorbells of connections with checksums differ in three things: Data is as long as a
// frame, FIN and Close say in their length what the stream came to, and there is Corrupt.

// KindCorrupt is Reset from an end that found a wrong checksum. It belongs to
// connections with checksums.
const KindCorrupt Kind = 7

// SumBits are the bits of a checksum that FIN and Close carry.
const SumBits = immLenMask

// FramedImm is Imm on a connection with checksums. Len of FIN and Close are the SumBits of
// the checksum of the whole stream.
func (d Doorbell) FramedImm() uint32 {
	switch d.Kind {
	case KindData:
		if d.Len%FrameAlign != 0 {
			return 0
		}
	case KindFIN, KindClose:
		if d.Len > SumBits || d.Grown {
			return 0
		}
		return uint32(d.Kind)<<immKindShift | d.Len
	case KindCorrupt:
		if d.Len != 0 || d.Grown {
			return 0
		}
		return uint32(KindCorrupt) << immKindShift
	}
	return d.Imm()
}

// ParseFramedDoorbell decodes an immediate on a connection with checksums. It returns an
// error matching ErrProtocol for one that FramedImm does not produce.
func ParseFramedDoorbell(imm uint32) (Doorbell, error) {
	d := Doorbell{Kind: Kind(imm >> immKindShift), Len: imm & immLenMask, Grown: imm&immGrown != 0}
	switch d.Kind {
	case KindData:
		if d.Len%FrameAlign != 0 {
			return Doorbell{}, violation("data that is no frame", uint64(d.Len), FrameAlign)
		}
	case KindFIN, KindClose:
		if d.Grown {
			return Doorbell{}, d.refusal()
		}
		return d, nil
	case KindCorrupt:
		if d.Len == 0 && !d.Grown {
			return d, nil
		}
	}
	return ParseDoorbell(imm)
}
