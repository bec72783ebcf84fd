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
	answers map[K]*answer[V]
}

type answer[V any] struct {
	mu    sync.Mutex // one caller at a time asks
	value V
	err   error
	until time.Time
}

// get returns what ask answers for the key, or has answered a moment ago. Callers of one key wait for
// each other, and not for those of another: an answer may take its time.
func (c *cache[K, V]) get(key K, ask func() (V, error)) (V, error) {
	a := c.of(key)
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Now().Before(a.until) {
		return a.value, a.err
	}
	v, err := ask()
	if !noDescriptors(err) {
		a.value, a.err, a.until = v, err, time.Now().Add(cacheFor)
	}
	return v, err
}

func (c *cache[K, V]) of(key K) *answer[V] {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.answers[key]
	if a == nil {
		if c.answers == nil || len(c.answers) >= maxCached {
			c.answers = map[K]*answer[V]{}
		}
		a = new(answer[V])
		c.answers[key] = a
	}
	return a
}

// noDescriptors reports whether something could not be opened because there are too many.
func noDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}
