package verbstest

import (
	"net/netip"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// Config tells Run what to test.
type Config struct {
	// Open opens the device under test. Run closes what it returns.
	Open func(t testing.TB) verbs.Context

	// Driver brings the connection manager of the device; nil leaves the tests
	// of CMID out.
	Driver driver.Driver
	// Device is the name under which Driver knows the device.
	Device string
	// Addr is a local address by which the device's CM is reached; the zero value
	// takes it from the GID table.
	Addr netip.Addr

	// Peer returns a command, not yet started, that runs Peer.Serve on its standard
	// input and output with the same device; see PeerCommand. nil leaves the
	// tests of peer death out.
	Peer func(t testing.TB) *exec.Cmd

	// Timeout bounds every wait for something that must happen; 0 is thirty seconds.
	Timeout time.Duration
	// Quiet is how long the suite watches for something that must not happen; 0
	// is thirty milliseconds.
	Quiet time.Duration

	// Slow says how many times slower the device is than a common one: long runs of
	// messages are so many times shorter. 0 is 1.
	Slow int

	// Deviations are what the device is known to do otherwise than the
	// specification says.
	Deviations Deviation

	// Only are the subjects to run, by their names; nil is all.
	Only []string
}

// A Deviation names a known difference between a device and the specification. A
// test then expects the difference instead, or is left out where it leaves nothing
// to expect.
type Deviation uint32

const (
	// DeviatesLocalStatus: local errors carry another code, as on the kernel's
	// rxe: LOC_QP_OP_ERR or WR_FLUSH_ERR (siw: GENERAL_ERR) for LOC_PROT_ERR and MW_BIND_ERR, and
	// in a receive that is too small REM_INV_REQ_ERR or LOC_QP_OP_ERR for LOC_LEN_ERR, of which the
	// sender is told by REM_OP_ERR. On UC and UD, too, where such a message should be lost and
	// the receive stay.
	DeviatesLocalStatus Deviation = 1 << iota
	// DeviatesNoErrorEvents: a responder that goes to ERR by a request of its peer
	// raises no QP_ACCESS_ERR and no QP_REQ_ERR (rxe).
	DeviatesNoErrorEvents
	// DeviatesEarlySlots: a slot of the send queue is free as soon as its request
	// has completed, polled or not (rxe).
	DeviatesEarlySlots
	// DeviatesQuietFlush: flushed requests do not count as errors for a CQ that is
	// armed for solicited completions (rxe).
	DeviatesQuietFlush
	// DeviatesInvalidate: SEND_WITH_INV and LOCAL_INV work on memory windows and fail on
	// MRs (every device of rdma-core).
	DeviatesInvalidate
	// DeviatesSQE: a UC or UD QP goes to ERR by a failed send of its own, as one of RC
	// does, and never to SQE (rxe).
	DeviatesSQE
	// DeviatesWindows: what may be reached through a memory window is all of its MR, and
	// the peers of other QPs of the PD may invalidate it (rxe).
	DeviatesWindows
	// DeviatesOwnQKey: a remote Q_Key with the highest bit set is sent as it is, and not the
	// QP's own in its place (rxe).
	DeviatesOwnQKey
	// DeviatesOnlyCM: a QP is connected by the connection manager and by nothing else,
	// once, and it is not taken back to RESET (iWARP). The suite connects its QPs by their
	// numbers then, takes them to ERR when the connection manager says that the connection
	// has ended, as drivers do with the QPs of ids, since a device may leave that to them (siw),
	// and leaves out what has no meaning there: transitions by hand, packet sequence
	// numbers, timers and retries, which are TCP's.
	DeviatesOnlyCM
	// DeviatesNoRNR: nobody waits for a receive: a SEND that finds none ends the connection
	// (iWARP; RFC 5041, section 7.1).
	DeviatesNoRNR
	// DeviatesEarlySuccess: a SEND or WRITE completes as soon as the transport has it, also
	// where the peer refuses it then, which ends the connection (iWARP: RFC 5040, section 5.5).
	DeviatesEarlySuccess
	// DeviatesReadOrder: requests that follow a READ complete before it (siw).
	DeviatesReadOrder
	// DeviatesEmptyRead: a READ of no bytes is answered with as many as another READ asked for
	// (siw).
	DeviatesEmptyRead
	// DeviatesErrPosts: what is posted in ERR never completes (siw).
	DeviatesErrPosts
	// DeviatesRights: the rights of a QP are not looked at, nor whether an MR may be read (siw).
	DeviatesRights
	// DeviatesSolicited: a solicited completion does not wake who armed for these, and of two
	// ways to arm the last one counts (siw).
	DeviatesSolicited
	// DeviatesClosedAnswer: where listeners are closed while clients take their answers, the
	// request of the next client is lost now and then (siw, whose count of a listening
	// endpoint's references then underflows: a WARNING of siw_cep_put).
	DeviatesClosedAnswer
	// DeviatesLateWrites: what is being placed when its MR is closed is placed to the end (siw, which
	// holds the memory of the message that it receives, and does not wait for it).
	DeviatesLateWrites
)

// beside says why a subject has nothing to say of a device with a Deviation.
var beside = map[string]struct {
	deviation Deviation
	why       string
}{
	"State": {DeviatesOnlyCM, "the connection manager alone changes its QPs' states"},
	"SQD":   {DeviatesOnlyCM, "the connection manager alone changes its QPs' states"},
	"RNR":   {DeviatesNoRNR, "a SEND that finds no receive ends the connection"},
}

func (c *Config) has(d Deviation) bool { return c.Deviations&d != 0 }

// Run runs the suite, every subject as a subtest. It counts goroutines and
// descriptors, so nothing else may run in the process meanwhile.
func Run(t *testing.T, cfg Config) {
	if cfg.Open == nil {
		t.Fatal("verbstest: Config.Open is nil")
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.Quiet == 0 {
		cfg.Quiet = 30 * time.Millisecond
	}
	s := &suite{cfg: cfg}
	s.warmUp(t)
	var before census
	t.Run("Census", func(t *testing.T) {
		before = takeCensus()
		before.objects = kernelObjects(t)
	})
	for _, subject := range subjects {
		if cfg.Only != nil && !slices.Contains(cfg.Only, subject.name) {
			continue
		}
		t.Run(subject.name, func(t *testing.T) {
			if b := beside[subject.name]; b.deviation != 0 && cfg.has(b.deviation) {
				t.Skip(b.why)
			}
			subject.run(t, s)
		})
	}
	t.Run("Leaks", func(t *testing.T) { before.requireNoMore(t, cfg.Timeout) })
}

const defaultTimeout = 30 * time.Second

// subjects are the chapters of the suite, in the order in which they build on
// each other.
var subjects = []struct {
	name string
	run  func(t *testing.T, s *suite)
}{
	{"Device", testDevice},
	{"Memory", testMemory},
	{"PD", testPD},
	{"MR", testMR},
	{"QP", testQP},
	{"State", testState},
	{"PostState", testPostState},
	{"Opcodes", testOpcodes},
	{"SendOps", testSendOps},
	{"Atomics", testAtomics},
	{"Invalidate", testInvalidate},
	{"Sizes", testSizes},
	{"SGE", testSGE},
	{"Inline", testInline},
	{"Fence", testFence},
	{"Signal", testSignal},
	{"QueueFull", testQueueFull},
	{"Order", testOrder},
	{"Concurrent", testConcurrent},
	{"RemoteProtection", testRemoteProtection},
	{"LocalProtection", testLocalProtection},
	{"RecvLength", testRecvLength},
	{"RNR", testRNR},
	{"Retry", testRetry},
	{"CQ", testCQ},
	{"Overrun", testOverrun},
	{"Arm", testArm},
	{"Channel", testChannel},
	{"Wakeups", testWakeups},
	{"Flush", testFlush},
	{"SQD", testSQD},
	{"SRQ", testSRQ},
	{"MW", testMW},
	{"UC", testUC},
	{"UD", testUD},
	{"Destroy", testDestroy},
	{"Death", testDeath},
	{"CM", testCM},
	{"CMErrors", testCMErrors},
	{"Allocations", testAllocations},
}

// suite is one run.
type suite struct {
	cfg Config
}
