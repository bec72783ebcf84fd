//go:build linux

package hosts

import (
	"os"
	"testing"
)

// TestFaults runs the cases one after the other: most break what the next one needs.
// The last one leaves only one host.
func TestFaults(t *testing.T) {
	needHosts(t, "softroce/faults")
	runCases(t, newWorld(t), []faultCase{
		{"Class", testClass},
		{"LostConfirmations", testLostConfirmations},
		{"Loss", testLoss},
		{"Disorder", testDisorder},
		{"Neighbour", testNeighbour},
		{"NeighbourNews", testNeighbourNews},
		{"Interrupted", testInterrupted},
		{"BlackHole", testBlackHole},
		{"LinkDown", testLinkDown},
		{"DeviceDeleted", testDeviceDeleted},
		{"ProcessStopped", testProcessStopped},
		{"ProcessKilled", testProcessKilled},
		{"ListenerKilled", testListenerKilled},
		{"KillRounds", testKillRounds},
		{"Many", testMany},
		{"Storm", testStorm},
		{"HostKilled", testHostKilled},
	})
}

// TestOneHost runs the cases that break no network between processes of this host,
// on the software device. It shows that the agents and workers do what they are told.
func TestOneHost(t *testing.T) {
	if os.Getenv(hostsVar) != "" {
		t.Skip("the software device has been tested where the program was built")
	}
	t.Setenv(deviceVar, "soft0")
	// How soon is measured where nothing else goes on.
	defer func(l limit) { atOnce = l }(atOnce)
	atOnce.slack = prompt
	runCases(t, newOneHost(t), []faultCase{
		{"ProcessKilled", testProcessKilled},
		{"ListenerKilled", testListenerKilled},
		{"KillRounds", testKillRounds},
		{"Many", testMany},
		{"Storm", testStorm},
	})
}

type faultCase struct {
	name string
	run  func(t *testing.T, w *world)
}

func runCases(t *testing.T, w *world, cases []faultCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w.begin(t)
			c.run(t, w)
		})
	}
	t.Logf("failures and how long they stayed unnoticed:\n%v", &detected)
}
