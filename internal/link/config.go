package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"time"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/link/hello"
	"github.com/rdmanet/go-rdmanet/internal/link/memory"
	"github.com/rdmanet/go-rdmanet/internal/shortage"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// Defaults of a Config, and the largest Backlog.
const (
	defaultReceives  = 511 // so that its CQ takes half the memory of one for 512, on mlx5 for one
	softReceives     = 2047
	defaultStreams   = 8192
	DefaultFirstRing = 1 << 10
	DefaultMaxRing   = 4 << 20
	defaultPlaces    = 32
	defaultBacklog   = 4096
	defaultIdle      = 10 * time.Second
	defaultMaxIdle   = 64
	MaxBacklog       = 1 << 20
	MaxLanes         = hello.MaxLanes
	defaultShrink    = 5 * time.Second

	// maxReceives bounds Config.Receives, so that the largest ring of records has room for a quarter.
	maxReceives = min(lane.MaxDepth, 4*lane.MaxPlaces)

	// MaxFirstRing bounds Config.FirstRing.
	MaxFirstRing = memory.ChunkSize
)

// defaultRecallTime is long, but a dialer need only read the request, whatever its application does.
const defaultRecallTime = 10 * time.Second

// goAwayTime is how long a dialer may take, while this process runs, to say how many streams it has
// opened at a listener that closes.
const goAwayTime = 10 * time.Second

// DefaultHandshakeTimeout is the default of Config.HandshakeTimeout.
const DefaultHandshakeTimeout = 5 * time.Second

// Config says how links are made. The zero value of a field stands for its default.
type Config struct {
	CM cm.Options // of the ids that bring lanes up

	// Receives is how many are posted for each lane, lane.MinDepth to maxReceives. The default is larger
	// on the software device, which pins nothing for them: a thousand streams then seldom wait for one.
	Receives int

	Streams lane.ID // the highest id of a stream

	// Lanes is over how many lanes the streams of a link are spread, 1 to MaxLanes: the lower of
	// both ends. The default is the number of processors that the process uses (GOMAXPROCS), or half
	// of them where the peer is in this host and uses them as well, or MaxLanes. A link has more only
	// where those are full.
	Lanes int

	// Secret tells the dialers of a listener apart, which share its places; NewLinks draws one
	// if it is the zero value.
	Secret hello.Secret

	// FirstRing is the ring that a stream begins with at this end, MaxRing the largest to
	// which it grows when it is half full. Both are powers of two.
	FirstRing uint32
	MaxRing   uint32

	// Shrink is for how long a ring has to be empty, or nearly unused, before the stream goes
	// back to one of FirstRing bytes. Where memory is short a fifth of it will do.
	Shrink time.Duration

	// Places is how many streams a listener lets each dialer open without asking, and eight times
	// as many one that opens many at once. Backlog bounds the places of all of them and the
	// streams that nobody has accepted.
	Places  int
	Backlog int

	// Idle is for how long a dialer keeps a lane that has no stream, MaxIdle how many such
	// lanes it keeps.
	Idle    time.Duration
	MaxIdle int

	// Checksum has all streams have checksums. A peer that does not know them gets no lane, nor
	// is asked for streams.
	Checksum bool

	// Retries is how often the device of this end sends again what is not acknowledged, 1 to 7;
	// below 0 a dialer's does not. 0 stands for 7 at a dialer, and at a listener, as what is below
	// does there, for what the dialer says.
	Retries int

	// HandshakeTimeout is how long a listener waits for the first message of a dialer.
	HandshakeTimeout time.Duration

	// OnEvent, if it is not nil, is told what the connection manager says of a listening id
	// besides requests. It must not wait.
	OnEvent func(*cm.Event)

	// Shortages has the dialers wait for whom a listener lacks descriptors or memory; nil
	// stands for a queue of its own. OnShortage, if it is not nil, is told each time, and is to
	// tell the queue. It must not wait.
	Shortages  *shortage.Queue
	OnShortage func(error)

	// OnEvict, if it is not nil, is called for each dialer that gives way to others at a listener:
	// as often as Requests.Evicted counts, with no lock held.
	OnEvict func()

	// Logger gets what goes wrong without an error being returned; nil stands for slog.Default().
	Logger *slog.Logger

	// KeepAlive has a peer that is silent asked for a sign of life while there are streams, and
	// given up, with all streams, Idle and Count times Interval after it was heard last. It has
	// no effect within a host, whose devices tell at once that a process has ended. Times that
	// are 0 stand for the defaults. While it is off a peer is asked only while a Write waits for
	// room.
	KeepAlive net.KeepAliveConfig

	// Redial, if it is not nil, is how a stream is dialled again that the listener has not
	// taken: by dial, whose error it returns, more than once if need be.
	Redial func(ctx context.Context, dial func(context.Context) error) error

	// Budget bounds the memory of rings and Buffers; nil stands for one without bound.
	Budget *memory.Budget

	// RecallTime is how long a dialer may take, while this process runs, to give places back that
	// others wait for.
	RecallTime time.Duration

	// checksums is what this end says of them, by Checksum; 0 is an end that is too old to know them.
	checksums cm.Features
}

var errConfig = errors.New("link: invalid configuration")

// lanes is Lanes, or its default.
func (c *Config) lanes(sameHost bool) int {
	if c.Lanes != 0 {
		return c.Lanes
	}
	return DefaultLanes(runtime.GOMAXPROCS(0), sameHost)
}

// depths are Receives, or its default, and how many records the ring of records holds: a power of two, and
// no fewer than a quarter of the receives. A device that is synchronous pins nothing.
func (c *Config) depths(synchronous bool) (receives, records int) {
	receives = c.Receives
	switch {
	case receives != 0:
	case synchronous:
		receives = softReceives
	default:
		receives = defaultReceives
	}
	for records = lane.MinPlaces; records < receives/4; records *= 2 {
	}
	return receives, records
}

// DefaultLanes is the default of Config.Lanes in a process that uses so many processors. On each lane a call
// may poll at either end: if these are more than there are processors they keep each other from running.
func DefaultLanes(processors int, sameHost bool) int {
	if sameHost {
		processors = (processors + 1) / 2
	}
	return min(processors, MaxLanes)
}

// withDefaults returns c with its defaults, or what is wrong with it.
func (c Config) withDefaults() (Config, error) {
	for _, f := range []struct {
		v        *int
		or       int
		least, m int
		name     string
	}{
		{&c.Lanes, 0, 0, MaxLanes, "Lanes"},
		{&c.Places, defaultPlaces, 1, int(lane.MaxStream), "Places"},
		{&c.Backlog, defaultBacklog, 1, MaxBacklog, "Backlog"},
		{&c.MaxIdle, defaultMaxIdle, 1, 1 << 20, "MaxIdle"},
	} {
		if *f.v == 0 {
			*f.v = f.or
		}
		if *f.v < f.least || *f.v > f.m {
			return c, fmt.Errorf("%w: %s %d is not from %d to %d", errConfig, f.name, *f.v, f.least, f.m)
		}
	}
	c.Streams = cmp.Or(c.Streams, defaultStreams)
	c.FirstRing = cmp.Or(c.FirstRing, DefaultFirstRing)
	c.MaxRing = cmp.Or(c.MaxRing, max(DefaultMaxRing, c.FirstRing))
	c.Idle = cmp.Or(c.Idle, defaultIdle)
	c.KeepAlive = withDefaultTimes(c.KeepAlive)
	c.Shrink = cmp.Or(c.Shrink, defaultShrink)
	c.HandshakeTimeout = cmp.Or(c.HandshakeTimeout, DefaultHandshakeTimeout)
	c.RecallTime = cmp.Or(c.RecallTime, defaultRecallTime)
	if c.Budget == nil {
		c.Budget = memory.Unbounded()
	}
	c.checksums = cm.FeatureChecksum
	if c.Checksum {
		c.checksums |= cm.FeatureWantChecksum
	}
	return c, c.check()
}

// check is what is wrong with c beyond the bounds of its numbers.
func (c *Config) check() error {
	switch {
	case c.Receives != 0 && (c.Receives < lane.MinDepth || c.Receives > maxReceives):
		return fmt.Errorf("%w: Receives %d is not from %d to %d", errConfig, c.Receives, lane.MinDepth, maxReceives)
	case c.Streams > lane.MaxStream:
		return fmt.Errorf("%w: Streams %d is above %d", errConfig, c.Streams, lane.MaxStream)
	case !ringSize(c.FirstRing) || c.FirstRing > MaxFirstRing, !ringSize(c.MaxRing), c.FirstRing > c.MaxRing:
		return fmt.Errorf("%w: rings of %d to %d bytes", errConfig, c.FirstRing, c.MaxRing)
	case c.Idle < 0:
		return fmt.Errorf("%w: Idle %v is negative", errConfig, c.Idle)
	case c.Retries > maxRetries:
		return fmt.Errorf("%w: Retries %d is above %d", errConfig, c.Retries, maxRetries)
	case c.HandshakeTimeout < 0:
		return fmt.Errorf("%w: HandshakeTimeout %v is negative", errConfig, c.HandshakeTimeout)
	case c.Shrink < 0:
		return fmt.Errorf("%w: Shrink %v is negative", errConfig, c.Shrink)
	}
	return nil
}

// logger returns the Logger.
func (c *Config) logger() *slog.Logger {
	if c.Logger != nil {
		return c.Logger
	}
	return slog.Default()
}

// retries is what a dialer's QP is to have.
func (c *Config) retries() uint8 {
	if c.Retries == 0 {
		return maxRetries
	}
	return uint8(max(c.Retries, 0))
}

// redial dials by dial.
func (c *Config) redial(ctx context.Context, dial func(context.Context) error) error {
	if c.Redial == nil {
		return dial(ctx)
	}
	return c.Redial(ctx, dial)
}

func ringSize(n uint32) bool { return n >= lane.MinRing && n <= lane.MaxRing && n&(n-1) == 0 }
