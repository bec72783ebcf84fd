package rdmanet

import (
	"flag"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// linkSkips are the tests that do not run where connections go by links, by the reason.
// docs/ARCHITECTURE.md, "Connections by links", lists what is missing for them.
var linkSkips = []struct{ reason, tests string }{
	{"they look at, or play, the inside of a connection with a QP of its own", `
		TestAcceptedBeginsWithAPark TestArm TestBlocksWithoutMemory TestChangeOverDoesNotWait
		TestChecksumAfterTheEnd TestChecksumCloseAfter TestChecksumCounted TestChecksumFlippedBit TestChecksumListed
		TestChecksumOff TestChecksumPadding TestChecksumReadsTogether TestChecksumWithoutASlot
		TestDeadlinesOfBothDirections TestDisconnectsWhereHeard TestDrainBehindCredit TestDrainCannotBeArmed
		TestDrainDisconnect TestDrainPeerCloses TestDrainReset TestFailureAfterArrival
		TestFaultyNotifications TestFaultyOverrun TestFaultyPosts TestFaultyReceives TestFaultySends TestFaultyShortPost
		TestFaultyRemoval TestGather TestGatherEnds TestGatherFullRing TestGatherMost TestGatherNoTail
		TestGatherPeerCloses TestGatherRefused TestGatherStream TestGatherStuck TestGatherTick TestGrowthHalfRead
		TestGrowthRegisters TestGrowthWithoutKeys TestIdleSharedMemory TestImmediateWhereNone TestLogOfConn
		TestLogWithLocksHeld TestLostWakeupFull TestLostWakeupPingPong TestPeerTakesMemoryAway
		TestReadOwesCredit TestRefusedReceives TestRefusedRequests TestRescue TestSetBusyPoll
		TestStressAbrupt TestTwoProcessLostWakeup TestKeepAlive TestKeepAliveHearsFailures
		TestKeepAliveHearsOfLeaving TestKeepAliveOnThisHost TestKeepAliveSetAgain TestPersist TestUnwrittenData TestWaitOnRemovedDevice TestWaitWhileClosing
		TestWakeups TestWriteHearsFailure`},
	{"they speak version 1 of the protocol", `
		TestChecksumEachBit TestChecksumKindUnknown TestChecksumNegotiation TestChecksumWaitsForRoom TestChecksumWire
		TestConfirmation TestConfirmationRefused TestDialAwaitsAcknowledgement TestFirstDataConfirms TestFirstWordInVain
		TestFirstWordIsAwaited TestFirstWordIsSaid TestHostileAsleep TestHostileBystanders TestHostileByteAMinute
		TestHostileBytesChange TestHostileDialerHandshake TestHostileEndless TestHostileFlood TestHostileKey
		TestHostileListenerAnswers TestHostileListenerHandshake TestHostileNoCredit TestHostileNoReceives
		TestHostileNoSlots TestHostileRKey TestHostileReplay TestHostileRing TestHostileToleratedWire TestHostileVanish
		TestHostileWire TestListenerAcknowledges TestNeverAcknowledged TestNoFirstData TestNoFirstWord
		TestSaidUnconfirmed TestSharedMemoryFuzz TestWithdrawnAnswerIsDialledAgain`},
	{"they count requests that wait at the listener, which over links wait at their dialers", `
		TestBacklogFull TestBacklogFullLeave TestHalfOpenGiveWay TestHalfOpenStay TestHalfOpenTenThousand
		TestTwoProcessKillListener TestWaitingClientsLeave`},
	{"beyond 16 KiB a ring grows for want of room alone, which a reader that keeps up does not show", `TestGrowthByUse`},
}

// linkSkipPattern is what go test is to skip.
func linkSkipPattern() string {
	var names []string
	for _, s := range linkSkips {
		names = append(names, strings.Fields(s.tests)...)
	}
	return "^(" + strings.Join(names, "|") + ")$"
}

// skipByLinks leaves out what does not apply where connections go by links, beside what
// -test.skip names. Flags are parsed.
func skipByLinks() error {
	if !overLinks {
		return nil
	}
	pattern := linkSkipPattern()
	if given := flag.Lookup("test.skip").Value.String(); given != "" {
		pattern += "|" + given
	}
	return flag.Set("test.skip", pattern)
}

// overLinksOnly skips a test of what there is only where connections go by links.
func overLinksOnly(t *testing.T) {
	t.Helper()
	if !overLinks {
		t.Skip("connections have QPs of their own")
	}
}

// TestLinkSkips: a test is skipped for one reason, and its name is spelled as it is.
func TestLinkSkips(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("some of the tests are there on Linux alone")
	}
	seen := map[string]bool{}
	for _, s := range linkSkips {
		for _, name := range strings.Fields(s.tests) {
			require.False(t, seen[name], "%s is listed twice", name)
			seen[name] = true
		}
	}
	out, err := exec.Command(os.Args[0], "-test.list", ".").Output()
	require.NoError(t, err)
	listed := strings.Fields(string(out))
	for name := range seen {
		require.Contains(t, listed, name, "no test has this name")
	}
}
