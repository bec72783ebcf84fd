//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"sync"
	"syscall"
	"time"
)

// cacheFor is how long answers of the system are taken for granted: every dial
// asks for them, and they change when somebody plugs a card or sets an address.
const cacheFor = time.Second

// maxCached bounds the answers that are remembered at once.
const maxCached = 1024

// A cache remembers answers for a moment, failures included, but not that there are no descriptors: that
// is no answer, and may be over.
type cache[K comparable, V any] struct {
	mu      sync.Mutex
	answers map[K]answer[V]
}

type answer[V any] struct {
	value V
	err   error
	until time.Time
}

// get returns what ask answers for the key, or has answered a moment ago. One
// caller at a time asks.
func (c *cache[K, V]) get(key K, ask func() (V, error)) (V, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if a, ok := c.answers[key]; ok && now.Before(a.until) {
		return a.value, a.err
	}
	if c.answers == nil || len(c.answers) >= maxCached {
		c.answers = map[K]answer[V]{}
	}
	v, err := ask()
	if !noDescriptors(err) {
		c.answers[key] = answer[V]{v, err, time.Now().Add(cacheFor)}
	}
	return v, err
}

// noDescriptors reports whether something could not be opened because there are too many.
func noDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}
