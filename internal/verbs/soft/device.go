//go:build linux && (amd64 || arm64)

package soft

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/rdmanet/go-rdmanet/internal/verbs/event"
	"github.com/rdmanet/go-rdmanet/internal/verbs/object"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// device is verbs.Device.
type device struct {
	name      string
	guid      uint64
	transport verbs.Transport

	mu     sync.Mutex
	shared *devContext
}

func (d *device) Name() string               { return d.name }
func (d *device) GUID() uint64               { return d.guid }
func (d *device) Transport() verbs.Transport { return d.transport }

func (d *device) Open() (verbs.Context, error) { return d.open(), nil }

func (d *device) open() *devContext {
	lookAtProcessors()
	control.KeepSpare()
	return &devContext{dev: d}
}

// sharedContext is the one context per process that the connection manager binds
// its ids to. It is never closed.
func (d *device) sharedContext() *devContext {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shared == nil {
		d.shared = d.open()
		d.shared.isShared = true
	}
	return d.shared
}

// writeImm reports whether the device has immediates.
func (d *device) writeImm() bool { return d.transport != verbs.TransportIWARP }

// devContext is verbs.Context.
type devContext struct {
	dev      *device
	isShared bool

	keys  keyTable
	mems  object.Memories[*memory]
	async event.Async
	qpns  qpnBlocks
	out   datagramOut

	users object.Users // what was made from the context
}

func (c *devContext) Device() verbs.Device { return c.dev }

func (c *devContext) QueryDevice() (verbs.DeviceAttr, error) {
	caps := verbs.CapAtomics | verbs.CapAtomicWrite | verbs.CapSRQ | verbs.CapSendInv | verbs.CapSameHost | verbs.CapSynchronous | verbs.CapMemWindow
	if c.dev.writeImm() {
		caps |= verbs.CapWriteImm | verbs.CapUC | verbs.CapUD
	}
	if shm.CanPopulate() {
		caps |= verbs.CapODP
	}
	return verbs.DeviceAttr{
		FWVer:           "1",
		NodeGUID:        c.dev.guid,
		HWVer:           1,
		Caps:            caps,
		MaxMRSize:       maxMRSize,
		MaxQP:           qpnBlockCount * qpnBlockSize,
		MaxQPWR:         maxQueue,
		MaxSGE:          maxSGE,
		MaxSGERD:        maxSGE,
		MaxCQ:           1 << 20,
		MaxCQE:          maxCQE,
		MaxMR:           maxMRs,
		MaxAH:           1 << 20,
		MaxMW:           maxMRs,
		MaxPD:           1 << 20,
		MaxQPRdAtom:     255,
		MaxQPInitRdAtom: 255,
		MaxSRQ:          1 << 20,
		MaxSRQWR:        maxQueue,
		MaxSRQSGE:       maxSGE,
		MaxInlineData:   1 << 30,
		PhysPortCnt:     1,
	}, nil
}

func (c *devContext) QueryPort(port uint8) (verbs.PortAttr, error) {
	gids, err := c.gids(port)
	if err != nil {
		return verbs.PortAttr{}, err
	}
	return verbs.PortAttr{
		State:      verbs.PortActive,
		MaxMTU:     verbs.MTU4096,
		ActiveMTU:  verbs.MTU4096,
		GIDTblLen:  len(gids),
		MaxMsgSize: maxMsg,
		LinkLayer:  verbs.LinkLayerEthernet,
	}, nil
}

func (c *devContext) QueryGID(port uint8, index int) (verbs.GIDEntry, error) {
	gids, err := c.gids(port)
	if err != nil {
		return verbs.GIDEntry{}, err
	}
	if index < 0 || index >= len(gids) {
		return verbs.GIDEntry{}, fmt.Errorf("%w: index %d of a GID table of %d", verbs.ErrInvalid, index, len(gids))
	}
	return gids[index], nil
}

// gids is the GID table of a port: one RoCE v2 entry for each address of the host.
func (c *devContext) gids(port uint8) ([]verbs.GIDEntry, error) {
	if port != 1 {
		return nil, fmt.Errorf("%w: port %d of a device with one", verbs.ErrInvalid, port)
	}
	ifs, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var out []verbs.GIDEntry
	for i := range ifs {
		addrs, err := ifs[i].Addrs()
		if err != nil {
			continue // the interface went away meanwhile
		}
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			if !ok {
				continue
			}
			ip, ok := netip.AddrFromSlice(n.IP)
			if !ok {
				continue
			}
			out = append(out, verbs.GIDEntry{
				GID: verbs.GIDFromAddr(ip.Unmap()), Index: len(out), Port: 1, Type: verbs.GIDTypeRoCEv2,
				NetDev: ifs[i].Name, IfIndex: ifs[i].Index,
			})
		}
	}
	return out, nil
}

// Objects is driver.ObjectCounter.
func (c *devContext) Objects() int { return c.users.Count() }

func (c *devContext) AllocPD() (verbs.PD, error) {
	if err := c.users.Hold(); err != nil {
		return nil, err
	}
	return &pd{ctx: c}, nil
}

func (c *devContext) CreateCompChannel() (verbs.CompChannel, error) {
	return object.Create(&c.users, func() (verbs.CompChannel, error) { return newChannel(c) })
}

func (c *devContext) CreateCQ(cqe int, channel verbs.CompChannel) (verbs.CQ, error) {
	var ch *compChannel
	if channel != nil {
		var ok bool
		if ch, ok = channel.(*compChannel); !ok || ch.ctx != c {
			return nil, fmt.Errorf("%w: completion channel of another context", verbs.ErrInvalid)
		}
	}
	return object.Create(&c.users, func() (verbs.CQ, error) { return newCQ(c, cqe, ch) })
}

func (c *devContext) AllocMemory(size, committed int) (verbs.Memory, error) {
	return object.Create(&c.users, func() (verbs.Memory, error) { return newMemory(c, size, committed) })
}

func (c *devContext) AsyncEvent(ctx context.Context) (verbs.AsyncEvent, error) {
	return c.async.Next(ctx)
}

// raise reports an asynchronous event.
func (c *devContext) raise(ev verbs.AsyncEvent) { c.async.Raise(ev) }

func (c *devContext) Close() error {
	return c.users.Close(func(users int) error {
		switch {
		case c.isShared:
			return fmt.Errorf("%w: the context belongs to the connection manager", verbs.ErrBusy)
		case users > 0:
			return fmt.Errorf("%w: %d objects of the context exist", verbs.ErrBusy, users)
		}
		c.async.Close()
		c.qpns.close()
		c.out.close()
		return nil
	})
}
