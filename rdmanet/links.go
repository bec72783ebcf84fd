package rdmanet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/link"
	"github.com/rdmanet/go-rdmanet/internal/link/hello"
)

// keptIdle is how long a link is kept that no connection uses; 0 stands for the default.
// Tests, which look for what is left, shorten it.
var keptIdle time.Duration

// linkPatience bounds a dial without a deadline that waits for a link or for a place. Tests
// shorten it.
var linkPatience = dialPatience

var errLinkPatience = errors.New("the listener gave the dial no place")

// A linkKey is what dials must agree in to share a link, beside the two addresses.
type linkKey struct {
	device       string
	anyUser      bool
	apartFromTCP bool
	path         pathOptions
	first, most  uint32
	checksum     bool
}

// linkSecret has all links of the process be those of one dialer.
var linkSecret = sync.OnceValue(hello.NewSecret)

// lastAlone is the number of the last dial with NoLink.
var lastAlone atomic.Uint64

// dialLinks are the links of the process's dials.
var dialLinks struct {
	mu   sync.Mutex
	sets map[linkKey]*link.Links
}

// linksOf returns the links of dials by key, which stay for the life of the process: those
// without a connection end by themselves.
func linksOf(key linkKey) (*link.Links, error) {
	dialLinks.mu.Lock()
	defer dialLinks.mu.Unlock()
	if l := dialLinks.sets[key]; l != nil {
		return l, nil
	}
	return newLinks(key)
}

// newLinks makes them. dialLinks.mu is held.
func newLinks(key linkKey) (*link.Links, error) {
	config := linkConfig(cm.Options{
		Device: key.device, AnyUser: key.anyUser, TOS: key.path.tos, AckTimeout: key.path.ackTimeout,
		ApartFromTCP: key.apartFromTCP,
	}, key.first, key.most)
	config.Checksum = key.checksum
	if config.Retries = int(key.path.retries); config.Retries == 0 {
		config.Retries = -1
	}
	l, err := link.NewLinks(config)
	if err != nil {
		return nil, err
	}
	if limitAtStart.found.Load() == nil {
		go budget.SetLimit(-1) // which asks: that takes longer than all else the first lane needs of this process
	}
	if dialLinks.sets == nil {
		dialLinks.sets = map[linkKey]*link.Links{}
	}
	dialLinks.sets[key] = l
	return l, nil
}

func linkConfig(options cm.Options, first, most uint32) link.Config {
	return link.Config{
		CM: options, FirstRing: min(first, link.MaxFirstRing), MaxRing: most, Idle: keptIdle, Budget: budget,
		KeepAlive: defaultKeepAlive, Secret: linkSecret(), Redial: redialStream,
	}
}

// dialOnLink makes one attempt by a link.
func (d *Dialer) dialOnLink(ctx context.Context, network string, src, dst netip.AddrPort, s sizes) (*Conn, error) {
	key := linkKey{
		device: deviceOr(d.Device), anyUser: d.AnyUser, apartFromTCP: withTCP(network), path: s.path, checksum: s.checksum,
	}
	key.first, key.most = s.first, s.most
	links, err := linksOf(key)
	if err != nil {
		return nil, err
	}
	waiting := ctx
	if _, bounded := ctx.Deadline(); !bounded {
		w := newWaitContext(ctx, linkPatience, errLinkPatience)
		defer w.stop()
		waiting = w
	}
	to := link.Target{Src: src, Dst: dst}
	if d.NoLink {
		to.Alone = lastAlone.Add(1)
	}
	st, err := links.DialLogged(waiting, to, loggerOr(d.Logger))
	if err != nil {
		if errors.Is(err, errLinkPatience) {
			return nil, os.NewSyscallError("connect", newConnError(syscall.ETIMEDOUT, err))
		}
		return nil, dialCause(ctx, err)
	}
	st.SetLogger(loggerOr(d.Logger))
	c := newConn(st, network, false)
	c.stream.configureKeepAlive(func(net.KeepAliveConfig) net.KeepAliveConfig { return dialKeepAlive(d.KeepAlive, d.KeepAliveConfig) })
	return c, nil
}

// redialStream dials once more for a Conn that the program has: its listener has closed without
// having taken it. It tries and waits for as long as a dial without a deadline would: that of
// the program has ended.
func redialStream(ctx context.Context, dial func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, linkPatience, errLinkPatience)
	defer cancel()
	_, err := redial(ctx, func() (struct{}, error) {
		return throughHandOver(ctx, func() (none struct{}, err error) {
			if err = dial(ctx); err != nil {
				err = dialCause(ctx, err)
			}
			return none, err
		})
	})
	return err
}

// bindLinks makes the listener of links and binds it.
func (l *Listener) bindLinks(options cm.Options, at netip.AddrPort) error {
	config := linkConfig(options, l.sizes.first, l.sizes.most)
	config.KeepAlive, config.Checksum = l.keepAlive, l.sizes.checksum
	config.Backlog, config.OnEvent, config.OnEvict = min(l.backlog, link.MaxBacklog), l.event, l.evicted
	config.Retries, config.HandshakeTimeout = int(l.sizes.path.retries), l.handshakeTimeout
	config.Shortages, config.OnShortage, config.Logger = l.shortages, l.reportShortage, l.logger
	links, err := link.Bind(config, at)
	if err == nil {
		budget.SetLimit(-1) // which asks, now, since the first client would wait for it
		l.links, l.id = links, links.ID()
		l.holding.Store(l.id)
	}
	return err
}

// take returns a connection that stands, nil if there is none any more.
func (l *Listener) take() *Conn {
	s, err := l.links.TryAccept()
	if s == nil || err != nil {
		return nil
	}
	return newConn(s, l.network, true)
}
