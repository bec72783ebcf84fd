package rdmanet

import "sync"

// A lastCount keeps what was counted last by what may be asked no more, or counts on for nobody. Who asks meanwhile
// gets no more than that: what is counted does not go down.
type lastCount[T any] struct {
	mu   sync.Mutex
	last *T
}

// now is what ask returns or, after end, what it returned then.
func (c *lastCount[T]) now(ask func() T) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != nil {
		return *c.last
	}
	return ask()
}

// end asks for the last time. It is to be called once.
func (c *lastCount[T]) end(ask func() T) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := ask()
	c.last = &last
	return last
}
