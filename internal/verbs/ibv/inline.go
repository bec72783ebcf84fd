//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"fmt"
	"sort"
	"sync"
	"syscall"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// maxInlineTried bounds the search for the largest inline data; no device is
// known to offer more.
const maxInlineTried = 4096

// inlineLimits remembers what a device grants, for as long as the program runs.
var inlineLimits struct {
	sync.Mutex
	byDevice map[string]int
}

// maxInlineData finds out how much inline data an RC QP may be made with, for which
// verbs have no query: by making QPs. A small request is granted by every device that
// grants a large one.
func (c *devContext) maxInlineData() (int, error) {
	inlineLimits.Lock()
	defer inlineLimits.Unlock()
	if n, ok := inlineLimits.byDevice[c.dev.name]; ok {
		return n, nil
	}
	n, err := c.probeInline()
	if err != nil {
		return 0, err
	}
	if inlineLimits.byDevice == nil {
		inlineLimits.byDevice = map[string]int{}
	}
	inlineLimits.byDevice[c.dev.name] = n
	return n, nil
}

func (c *devContext) probeInline() (n int, err error) {
	domain, err := c.AllocPD()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, domain.Close()) }()
	completions, err := c.CreateCQ(1, nil)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, completions.Close()) }()

	return largestInline(func(inline int) (int, error) {
		attr := verbs.QPInitAttr{
			Type: verbs.QPTypeRC, SendCQ: completions, RecvCQ: completions,
			Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: inline},
		}
		q, err := domain.(*pd).createQP(&attr, nil)
		if err != nil {
			return 0, err
		}
		return attr.Cap.MaxInlineData, q.Close()
	})
}

// largestInline is how much inline data is granted at most. make makes a QP with so much
// and says how much it has got: providers refuse what is too much, or grant less (hns).
func largestInline(make func(inline int) (int, error)) (int, error) {
	if _, err := make(0); err != nil {
		if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.EINVAL) {
			err = fmt.Errorf("%w: the device has no RC QPs, which connections are made of: %w", verbs.ErrNotSupported, err)
		}
		return 0, err
	}
	var short error
	// The first that is not granted; one above it never is.
	n := sort.Search(maxInlineTried, func(i int) bool {
		if short != nil {
			return true
		}
		got, err := make(i + 1)
		if err != nil && !errors.Is(err, syscall.EINVAL) {
			// Providers refuse what is too much by ENOMEM, too. But others may use up what QPs
			// are made of, and the device may go away: what it refuses for the inline data it
			// has made without just before and behind.
			if _, short = make(0); short == nil {
				got, err = make(i + 1)
			}
		}
		return err != nil || got < i+1
	})
	return n, short
}
