//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cache[int, int]
		asked := 0
		failed := errors.New("failed")
		get := func(key int) (int, error) {
			return c.get(key, func() (int, error) {
				asked++
				if key < 0 {
					return 0, failed
				}
				return 10 * key, nil
			})
		}
		for range 3 {
			v, err := get(4)
			assert.NoError(t, err)
			assert.Equal(t, 40, v)
			_, err = get(-1)
			assert.ErrorIs(t, err, failed)
		}
		assert.Equal(t, 2, asked)
		lacks := fmt.Errorf("cannot look: %w", syscall.EMFILE)
		_, err := c.get(-2, func() (int, error) { return 0, lacks })
		assert.ErrorIs(t, err, syscall.EMFILE)
		v, err := c.get(-2, func() (int, error) { return 7, nil })
		assert.NoError(t, err, "a lack of descriptors is no answer")
		assert.Equal(t, 7, v)
		time.Sleep(cacheFor)
		_, _ = get(4)
		assert.Equal(t, 3, asked, "an old answer is asked for again")
		for i := range 3 * maxCached {
			_, _ = get(i)
		}
		assert.LessOrEqual(t, len(c.answers), maxCached)
	})
}

// TestCacheAsksAtOnce: an answer that takes its time keeps those who ask for it, and nobody else.
func TestCacheAsksAtOnce(t *testing.T) {
	var c cache[int, int]
	asked, answer := make(chan struct{}), make(chan int)
	got := make(chan int, 2)
	ask := func() {
		v, _ := c.get(1, func() (int, error) { close(asked); return <-answer, nil })
		got <- v
	}
	go ask()
	<-asked
	go ask() // and closes nothing again
	v, err := c.get(2, func() (int, error) { return 20, nil })
	assert.NoError(t, err)
	assert.Equal(t, 20, v)
	answer <- 10
	assert.Equal(t, 10, <-got)
	assert.Equal(t, 10, <-got)
}
