package lane

// waiters is a list of Waiters in the order in which they came. Removing one takes the same time
// wherever it is. It allocates only for a Waiter that is higher than all before.
type waiters struct {
	first, last Waiter
	of          []neighbours // by the Waiter less 1
}

// neighbours are the Waiters before and after one, 0 being none.
type neighbours struct {
	before, after Waiter
	waits         bool
}

func (l *waiters) empty() bool { return l.first == 0 }

func (l *waiters) contains(w Waiter) bool {
	return w != 0 && uint64(w) <= uint64(len(l.of)) && l.of[w-1].waits
}

// push adds w, which is not there, as the last.
func (l *waiters) push(w Waiter) {
	for uint64(w) > uint64(len(l.of)) {
		l.of = append(l.of, neighbours{})
	}
	l.of[w-1] = neighbours{before: l.last, waits: true}
	if l.last == 0 {
		l.first = w
	} else {
		l.of[l.last-1].after = w
	}
	l.last = w
}

// remove takes w out, if it is there.
func (l *waiters) remove(w Waiter) {
	if !l.contains(w) {
		return
	}
	n := l.of[w-1]
	if n.before == 0 {
		l.first = n.after
	} else {
		l.of[n.before-1].after = n.after
	}
	if n.after == 0 {
		l.last = n.before
	} else {
		l.of[n.after-1].before = n.before
	}
	l.of[w-1] = neighbours{}
}
