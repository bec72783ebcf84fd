package lane

// abort is the last message on a lane whose peer broke the protocol: which rule it was.
type abort struct {
	rule Rule // 0: none
	sent bool
}

// Abort has Next return one last message, which tells the peer the rule about the lane that it
// broke, if it has a receive and a place for it now. The caller ends the lane then.
func (l *Lane) Abort(rule Rule) {
	if l.abort.rule == 0 && rule > 0 && rule <= lastLaneRule {
		l.abort.rule = rule
	}
}

// nextAbort is Next of a lane that ends.
func (l *Lane) nextAbort() (Message, bool) {
	if l.abort.sent || l.slots.Free() == 0 || !l.slots.hasPlace() {
		return Message{}, false
	}
	l.abort.sent = true
	return l.record(Record{Kind: KindAbort, Code: Code(l.abort.rule)}), true
}
