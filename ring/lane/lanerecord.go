package lane

// laneRecord returns the next record about the lane itself, if one may be sent.
func (l *Lane) laneRecord() (r Record, ok bool) {
	if !l.slots.CanRecord() {
		return r, false
	}
	switch {
	case l.control.len() > 0:
		return l.control.pop(), true
	case l.grants.len() > 0:
		r = l.grants.pop()
		for i := range ID(r.Count) {
			l.table.At(r.Stream + i).placed = true
		}
		return r, true
	case l.recall > 0:
		r, l.recall = Record{Kind: KindRecall, Count: l.recall}, 0
		return r, true
	case l.want > 0:
		n := min(l.want, int(MaxStream))
		l.want -= n
		return Record{Kind: KindWant, Count: uint16(n)}, true
	}
	return r, false
}
