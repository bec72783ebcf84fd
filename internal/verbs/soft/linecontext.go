//go:build linux && (amd64 || arm64)

package soft

import "github.com/rdmanet/go-rdmanet/internal/verbs"

// lineContext is the context of an id on a line: what is allocated from it may be what
// the peer knows from the connection before.
type lineContext struct {
	*devContext
	line *line
}

func (c *lineContext) CreateCompChannel() (verbs.CompChannel, error) {
	e := c.line.takeEvent()
	if e == nil {
		return c.devContext.CreateCompChannel()
	}
	if err := c.hold(); err != nil {
		e.close()
		return nil, err
	}
	return newChannel(c.devContext, e), nil
}

func (c *lineContext) AllocMemory(size, committed int) (verbs.Memory, error) {
	if m := c.line.takeMemory(c.devContext, size, committed, 0); m != nil {
		return c.take(m)
	}
	return c.devContext.AllocMemory(size, committed)
}

func (c *lineContext) AllocQueueMemory(size, committed, receives int) (verbs.Memory, error) {
	if !mayJoin(receives) {
		return c.AllocMemory(size, committed)
	}
	if m := c.line.takeMemory(c.devContext, size, committed, receives); m != nil {
		return c.take(m)
	}
	return c.devContext.AllocQueueMemory(size, committed, receives)
}

// take makes memory the context's.
func (c *lineContext) take(m *memory) (verbs.Memory, error) {
	if err := c.hold(); err != nil {
		m.free()
		return nil, err
	}
	c.mems.add(m)
	return m, nil
}
