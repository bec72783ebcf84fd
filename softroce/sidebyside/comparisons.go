package main

import (
	"fmt"
	"math"
	"time"
)

// A group is a set of programs that do the same work one after the other.
type group struct {
	name  string
	lossy bool // over a link that loses one packet in a hundred
	runs  []program
	rows  []row
}

// A row of the table compares this library with one other program of a group.
type row struct {
	against string
	limit   float64 // of the ratio, as the design has it; 0: none is set
	time    bool    // what is compared is time, so the limit is an upper one
}

// met reports whether a ratio keeps the limit.
func (r row) met(ratio float64) bool {
	if r.time {
		return ratio <= r.limit
	}
	return ratio >= r.limit
}

// ours is the name of this library's program in every group, and the one that others
// are compared with.
const ours = "rdmanet"

// Streams of each of these sizes, with how many messages rstream sends in about a second.
var streams = []struct {
	size    int
	rstream int
	writeBW float64 // limit against ib_write_bw
}{
	{64, 4000, 0},
	{4 << 10, 1000, 0},
	{64 << 10, 150, 0.9},
	{1 << 20, 12, 0.95},
}

// comparisons is everything that the design sets a limit for on soft-RoCE, and kernel
// TCP and SMC-R. bench is the path of the compiled benchmarks at the root of this module, crowds
// of those of internal/bench, rsdial of the program that dials by rsockets.
func comparisons(bench, crowds, rsdial string) (groups []group) {
	for _, s := range streams {
		groups = append(groups, group{
			name: "stream " + sizeName(s.size),
			runs: []program{
				writeBandwidth("ib_write_bw", s.size, time.Second),
				stream(ours, bench, "rdma", s.size, time.Second/2),
				rstream("rstream", s.size, s.rstream),
				stream("SMC-R", bench, "smc", s.size, time.Second/2),
				stream("TCP", bench, "tcp", s.size, time.Second/2),
			},
			rows: []row{{against: "ib_write_bw", limit: s.writeBW}, {against: "rstream", limit: 1.1}, {against: "SMC-R"}, {against: "TCP"}},
		})
	}
	const size, trips = 64, 600
	groups = append(groups,
		group{
			name: "echo 64 B, polled",
			runs: []program{
				sendLatency("ib_send_lat", size, trips),
				echo(ours, bench, "EchoPolled", "rdma", size, trips, "p50-ns"),
			},
			rows: []row{{against: "ib_send_lat", limit: 1.15, time: true}},
		},
		group{
			name: "echo 64 B, blocking",
			runs: []program{
				// Its send CQ has room for one completion and overflows when it sleeps.
				sendLatency("ib_send_lat -e", size, trips, "-e", "-t", "64"),
				rstreamEcho("rstream", size, trips),
				echo(ours, bench, "Echo", "rdma", size, trips, "ns/op"),
				echo("TCP", bench, "Echo", "tcp", size, trips, "ns/op"),
			},
			rows: []row{{against: "rstream", limit: 1, time: true}, {against: "ib_send_lat -e", time: true}, {against: "TCP", time: true}},
		})
	for _, d := range []struct {
		name, binary, work, option string
		count, dials               int
		limit                      float64 // against TCP
	}{
		{"dials, one after the other", bench, "Dial/goroutines=1", "-c", 50, 50, 0.5},
		{"200 dials at once", crowds, crowdWork, "-a", 1, 200, 1},
	} {
		groups = append(groups, group{
			name: d.name,
			runs: []program{
				dials(ours, d.binary, d.work, "rdma", d.count, d.dials),
				rsockets("rsockets (rsdial)", rsdial, d.option, d.dials),
				dials("SMC-R", d.binary, d.work, "smc", d.count, d.dials),
				dials("TCP", d.binary, d.work, "tcp", d.count, d.dials),
			},
			rows: []row{{against: "rsockets (rsdial)"}, {against: "SMC-R"}, {against: "TCP", limit: d.limit}},
		})
	}
	groups = append(groups, group{
		name: "1,000 dials at once",
		runs: []program{
			dials(ours, crowds, crowdWork, "rdma", 1, 1000),
			dials("TCP", crowds, crowdWork, "tcp", 1, 1000),
		},
		rows: []row{{against: "TCP", limit: 1}},
	})
	// cmtime only connects, so what is compared with it is when the last dial has returned.
	const connections = 200
	groups = append(groups, group{
		name: "200 dials at once, until all return",
		runs: []program{
			crowd(ours, crowds, connections),
			cmtime("cmtime, its connect phase", connections),
		},
		rows: []row{{against: "cmtime, its connect phase", limit: 2, time: true}},
	})
	// By itself, so that the others do not wait for one that stalls.
	groups = append(groups, group{
		name: "echo 64 B, blocking, SMC",
		runs: []program{
			echo(ours, bench, "Echo", "rdma", size, trips, "ns/op"),
			echo("SMC-R", bench, "Echo", "smc", size, trips, "ns/op"),
		},
		rows: []row{{against: "SMC-R", time: true}},
	})
	for _, s := range streams {
		if s.writeBW == 0 {
			continue
		}
		groups = append(groups, group{
			name: fmt.Sprintf("stream %s, 1%% loss", sizeName(s.size)), lossy: true,
			runs: []program{
				writeBandwidth("ib_write_bw", s.size, 3*time.Second),
				stream(ours, bench, "rdma", s.size, 3*time.Second),
				// How long a lost acknowledgement is waited for is a choice: this is ours.
				writeBandwidth("ib_write_bw -u 16", s.size, 3*time.Second, "-u", "16"),
			},
			rows: []row{{against: "ib_write_bw", limit: 0.8}, {against: "ib_write_bw -u 16", limit: 0.8}},
		})
	}
	return groups
}

func sizeName(n int) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	if n >= 1<<10 {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// samples are what the programs came to, by group, program and round.
type samples map[[2]string]map[int]float64

func (s *samples) add(group, program string, round int, value float64, err error) {
	if *s == nil {
		*s = samples{}
	}
	key := [2]string{group, program}
	if (*s)[key] == nil {
		(*s)[key] = map[int]float64{}
	}
	if err != nil {
		value = math.NaN()
	}
	(*s)[key][round] = value
}

// ratios pairs what two programs of a group came to in the same rounds.
func (s samples) ratios(group, program, against string) (ratios []float64) {
	theirs := s[[2]string{group, against}]
	for round, value := range s[[2]string{group, program}] {
		if ratio := value / theirs[round]; ratio > 0 && !math.IsInf(ratio, 0) {
			ratios = append(ratios, ratio)
		}
	}
	return ratios
}
