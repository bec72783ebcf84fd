package lane

// abort is the last that an end says of a lane whose peer has lied: which rule that broke.
type abort struct {
	rule Rule // 0: the lane stands
	said bool
}

// Abort has Next tell the peer which rule about the lane it broke, if it has a receive and a
// place for that now, and nothing more. The lane is to be ended then.
func (l *Lane) Abort(rule Rule) {
	if l.abort.rule == 0 && rule > 0 && rule <= lastLinkRule {
		l.abort.rule = rule
	}
}

// nextAbort is Next of a lane that ends.
func (l *Lane) nextAbort() (Message, bool) {
	if l.abort.said || l.slots.Free() == 0 || !l.slots.hasPlace() {
		return Message{}, false
	}
	l.abort.said = true
	return l.record(Record{Kind: KindAbort, Code: Code(l.abort.rule)}), true
}
