package rdmanet

import "time"

// firstDataAfter is how long a client that was answered has to confirm before it is looked
// whether it sends already.
const firstDataAfter = 50 * time.Millisecond

// awaitFirstData has notify called when data arrives before stop is called. The message
// with which a client confirms its connection may be lost on a network, and is repeated
// after seconds; the client may send at once. Nobody else may read or wait meanwhile.
func (c *Conn) awaitFirstData(notify func()) (stop func()) {
	if c.ep.sameHost {
		return func() {} // nothing is lost there
	}
	ended := make(chan struct{})
	begin := time.AfterFunc(firstDataAfter, func() {
		defer close(ended)
		arrived := false
		look := func() bool {
			c.rx.Lock()
			c.progress()
			arrived = c.rxStats.doorbells > 0
			c.rx.Unlock()
			return arrived || c.term.broken()
		}
		err := c.ep.wait(dirRead, func() bool { return look() || c.ep.recvCQ.ReqNotify(false) != nil || look() })
		if err == nil && arrived {
			notify()
		}
	})
	return func() {
		if begin.Stop() {
			return
		}
		c.ep.setDeadline(dirRead, longPast)
		<-ended
		c.ep.setDeadline(dirRead, time.Time{})
	}
}
