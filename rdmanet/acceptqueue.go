package rdmanet

import "sync"

// An acceptQueue has the connections that wait for Accept. It has no bound, since each of
// them has a place of the listener's, and costs nothing while it is empty.
type acceptQueue struct {
	mu     sync.Mutex
	conns  []*Conn // from head on
	head   int
	closed bool
	// ready holds a token while there is something to take, or nothing will come any more.
	// Who takes the token calls take.
	ready chan struct{}
}

func (q *acceptQueue) init() { q.ready = make(chan struct{}, 1) }

// push adds a connection to a queue that is not closed.
func (q *acceptQueue) push(c *Conn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.head > len(q.conns)/2 { // which allocates nothing in the long run
		n := copy(q.conns, q.conns[q.head:])
		clear(q.conns[n:])
		q.conns, q.head = q.conns[:n], 0
	}
	q.conns = append(q.conns, c)
	q.signal()
}

// take returns the first connection, if there is one. open says whether one may come.
func (q *acceptQueue) take() (c *Conn, open bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.head < len(q.conns) {
		c = q.conns[q.head]
		q.conns[q.head] = nil
		if q.head++; q.head == len(q.conns) {
			q.conns, q.head = q.conns[:0], 0
			if cap(q.conns) > keptQueue {
				q.conns = nil
			}
		}
	}
	open = !q.closed || q.head < len(q.conns)
	q.signal()
	return c, open
}

// keptQueue is for how many connections an empty queue keeps memory.
const keptQueue = 128

// signal keeps the promise of ready. Called with mu held.
func (q *acceptQueue) signal() {
	if q.head == len(q.conns) && !q.closed {
		return
	}
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

func (q *acceptQueue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.conns) - q.head
}

// close says that nothing will be pushed any more.
func (q *acceptQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.signal()
}

// next waits for a connection; nil says that there will be none.
func (q *acceptQueue) next() *Conn {
	for {
		<-q.ready
		if c, open := q.take(); c != nil || !open {
			return c
		}
	}
}
