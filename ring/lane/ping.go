package lane

// ping has the PING of this end and that of the peer. At most one of each is under way.
type ping struct {
	asked bool // PING is not answered yet
	token uint64
	owes  bool // an answer to the peer's
	reply uint64
	send  bool // PING was not sent yet
}

// Ping sends the peer a PING with token, and reports whether it could: not while an earlier one is
// unanswered. EventPong tells the answer.
func (l *Lane) Ping(token uint64) bool {
	if l.ping.asked {
		return false
	}
	l.ping.asked, l.ping.send, l.ping.token = true, true, token
	return true
}

func (l *Lane) pingArrived(r *Record) error {
	p := &l.ping
	if r.Kind == KindPing {
		if p.owes {
			return violation(RulePing, 0, r.Total, p.reply)
		}
		p.owes, p.reply = true, r.Total
		return nil
	}
	if !p.asked || p.send || r.Total != p.token {
		return violation(RulePing, 0, r.Total, p.token)
	}
	p.asked = false
	l.tell(Event{Kind: EventPong})
	return nil
}

// laneRecord returns the next record about the lane itself, if one may be sent.
func (l *Lane) laneRecord() (r Record, ok bool) {
	if !l.slots.CanRecord() {
		return r, false
	}
	p := &l.ping
	switch {
	case p.owes:
		p.owes = false
		return Record{Kind: KindPong, Total: p.reply}, true
	case p.send:
		p.send = false
		return Record{Kind: KindPing, Total: p.token}, true
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
