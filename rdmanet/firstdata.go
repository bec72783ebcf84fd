package rdmanet

import (
	"context"
	"time"
)

// firstDataAfter is how long a client that was answered has to confirm before it is looked
// whether it sends already.
const firstDataAfter = 50 * time.Millisecond

// awaitFirstData has notify called when data arrives before stop is called. The message
// with which a client confirms its connection may be lost on a network, and is repeated
// after seconds; the client may send at once. Nobody else may read or wait meanwhile.
func (s *stream) awaitFirstData(notify func()) (stop func()) {
	if s.ep.sameHost {
		return func() {} // nothing is lost there
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	begin := time.AfterFunc(firstDataAfter, func() {
		defer close(ended)
		if s.hear(ctx) == nil {
			notify()
		}
	})
	return func() {
		cancel()
		if !begin.Stop() {
			<-ended
		}
	}
}
