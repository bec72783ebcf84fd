//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"sort"
	"sync"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// maxInlineTried bounds the search for the largest inline data; no device is
// known to offer more.
const maxInlineTried = 4096

// inlineLimits remembers what a device grants, for as long as the program runs.
var inlineLimits struct {
	sync.Mutex
	byDevice map[string]int
}

// maxInlineData finds out how much inline data a QP may be made with, for which
// verbs have no query: by making QPs. A small request is granted by every device
// that grants a large one.
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

	try := func(inline int) error {
		q, err := domain.(*pd).createQP(&verbs.QPInitAttr{
			Type: verbs.QPTypeRC, SendCQ: completions, RecvCQ: completions,
			Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: inline},
		}, nil)
		if err != nil {
			return err
		}
		return q.Close()
	}
	if err := try(0); err != nil {
		return 0, err
	}
	// The first that is refused; one above it was never granted.
	refused := sort.Search(maxInlineTried, func(i int) bool { return try(i+1) != nil })
	return refused, nil
}
