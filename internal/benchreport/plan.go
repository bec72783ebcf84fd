package main

import (
	"fmt"
	"strings"
)

// section is a group of rows under one heading.
type section struct {
	title, note string
	rows        []row
}

// row is a line of the table: how to come from the results to the values of its two
// columns, one for each round, and what they should be.
type row struct {
	work, against string
	target        target
	values        func(res *results, procs string) []float64
	limit         func(res *results) []float64 // what the machine allows; may be nil
}

// target bounds the median of the values.
type target struct {
	kind  targetKind
	bound float64
}

type targetKind int

const (
	noTarget targetKind = iota
	targetAtLeast
	targetAtMost
)

func atLeast(bound float64) target { return target{targetAtLeast, bound} }
func atMost(bound float64) target  { return target{targetAtMost, bound} }

var none target

// orEven is t, or where that is none the least that any work should come to: nothing is to be slower than
// over TCP, and no stream and no echo slower than over a Unix socket.
func (t target) orEven(work, other string) target {
	kind, _, _ := strings.Cut(work, "/")
	moves := strings.HasPrefix(kind, "Echo") || kind == "Stream" || kind == "Beside" || kind == "Busy"
	if t == none && (other == "tcp" || other == "unix" && moves) {
		return atLeast(1)
	}
	return t
}

func (t target) reached(v float64) bool {
	switch t.kind {
	case targetAtLeast:
		return v >= t.bound
	case targetAtMost:
		return v <= t.bound
	}
	return true
}

func (t target) String() string {
	switch t.kind {
	case targetAtLeast:
		return "at least " + number(t.bound)
	case targetAtMost:
		if t.bound == 0 {
			return "0"
		}
		return "at most " + number(t.bound)
	}
	return ""
}

const ours = "rdma"

// transportNames are how the table calls what ours is compared with.
var transportNames = map[string]string{
	"tcp":      "TCP",
	"unix":     "Unix",
	"ring":     "raw ring",
	"pingpong": "ping-pong",
	ours:       "one process",
}

func caseOf(work, procs, transport string) string {
	return fmt.Sprintf("%s/procs=%s/transport=%s", work, procs, transport)
}

// faster is how many times the rate of another ours is, by a metric that counts time.
func faster(title, work, metric, other string, t target) row {
	t = t.orEven(work, other)
	return row{work: title, against: transportNames[other], target: t, values: func(res *results, procs string) []float64 {
		return res.sample(caseOf(work, procs, other), metric).over(res.sample(caseOf(work, procs, ours), metric))
	}}
}

// within is faster with what a limit, which does nothing but move the bytes within one
// process, comes to against the other.
func within(limit, title, work, metric, other string, t target) row {
	r := faster(title, work, metric, other, t)
	r.limit = func(res *results) []float64 {
		return res.sample(caseOf(work, "one", other), metric).over(res.sample(caseOf(work, "one", limit), metric))
	}
	return r
}

// longer is how many times as long as another ours takes.
func longer(title, work, metric, other string, t target) row {
	return row{work: title, against: transportNames[other], target: t, values: func(res *results, procs string) []float64 {
		return res.sample(caseOf(work, procs, ours), metric).over(res.sample(caseOf(work, procs, other), metric))
	}}
}

// more is how many times a rate of another ours has.
func more(title, work, metric, other string, t target) row {
	return longer(title, work, metric, other, t.orEven(work, other))
}

// twoAgainstOne is the rate with the other end in a process of its own, against that
// within one process.
func twoAgainstOne(title, work, metric string) row {
	return row{work: title, against: transportNames[ours], target: atLeast(0.8), values: func(res *results, procs string) []float64 {
		if procs != "two" {
			return nil
		}
		return res.sample(caseOf(work, "one", ours), metric).over(res.sample(caseOf(work, "two", ours), metric))
	}}
}

// counted is a metric of ours by itself, in units of unit.
func counted(title, work, metric string, unit float64, t target) row {
	r := countedOver(ours, title, work, metric, unit)
	r.target = t
	return r
}

// countedOver is counted of another transport.
func countedOver(transport, title, work, metric string, unit float64) row {
	return row{work: title, values: func(res *results, procs string) []float64 {
		values := res.sample(caseOf(work, procs, transport), metric).values()
		for i := range values {
			values[i] /= unit
		}
		return values
	}}
}

// plan is the whole table. Targets are those of the design.
func plan() []section {
	return []section{streams(), roundTrips(), twoProcesses(), overHTTP(), overTLS(), connecting(), manyConnections(), unread(), besideBulk(), busyProcessors(), idleConnections(), zeroCopy(), checksums(), perMessage()}
}

func streams() section {
	s := section{title: "Streams", note: "How many times the messages per second."}
	for _, size := range []struct {
		name            string
		tcp, unix, ring target
	}{
		// Ten million messages a second, where the ring does 28.
		{"64B", atLeast(40), atLeast(20), atLeast(10. / 28)},
		{"1KiB", atLeast(20), atLeast(8), none},
		{"4KiB", none, none, none},
		{"64KiB", atLeast(5), atLeast(4), atLeast(0.7)},
		{"1MiB", atLeast(4), atLeast(2.5), none},
	} {
		title, work := "writes of "+spaced(size.name), "Stream/size="+size.name
		s.rows = append(s.rows,
			within("ring", title, work, "ns/op", "tcp", size.tcp),
			within("ring", title, work, "ns/op", "unix", size.unix),
			faster(title, work, "ns/op", "ring", size.ring))
	}
	return s
}

func roundTrips() section {
	s := section{title: "Round trips", note: "How many times shorter; against the ping-pong, how many times as long."}
	echo := func(size string) string { return "Echo/size=" + size }
	s.rows = append(s.rows,
		within("pingpong", "64 B, both awake, median", echo("64B"), "p50-ns", "tcp", atLeast(15)),
		within("pingpong", "64 B, both awake, median", echo("64B"), "p50-ns", "unix", atLeast(8)),
		longer("64 B, both awake, median", echo("64B"), "p50-ns", "pingpong", atMost(3)),
		faster("64 B, both awake, 99th percentile", echo("64B"), "p99-ns", "tcp", none),
		faster("64 B, both awake, 99th percentile", echo("64B"), "p99-ns", "unix", none))
	for _, size := range []string{"4KiB", "64KiB", "1MiB"} {
		title := spaced(size) + ", both awake, median"
		s.rows = append(s.rows,
			faster(title, echo(size), "p50-ns", "tcp", none),
			faster(title, echo(size), "p50-ns", "unix", none))
	}
	const idle = "EchoIdle/size=64B"
	s.rows = append(s.rows,
		faster("64 B, both asleep in between, median", idle, "p50-ns", "unix", atLeast(1)),
		faster("64 B, both asleep in between, median", idle, "p50-ns", "tcp", none))
	return s
}

func twoProcesses() section {
	s := section{title: "Two processes", note: "The rate between two processes as a share of that within one."}
	for _, size := range []string{"64B", "1KiB", "64KiB", "1MiB"} {
		s.rows = append(s.rows, twoAgainstOne("stream of "+spaced(size), "Stream/size="+size, "ns/op"))
	}
	s.rows = append(s.rows, twoAgainstOne("echo of 64 B, median", "Echo/size=64B", "p50-ns"))
	return s
}

func overHTTP() section {
	s := section{title: "HTTP", note: "`http.Server` and `http.Transport`, keep-alive: how many times the pages per second."}
	for _, size := range []string{"1KiB", "1MiB"} {
		for _, clients := range []string{"1", "8", "64"} {
			for _, proto := range []struct{ name, title string }{
				{"http1", "HTTP/1.1"}, {"https1", "HTTP/1.1, TLS"}, {"http2", "HTTP/2, TLS"}, {"h2c", "HTTP/2"},
			} {
				title := fmt.Sprintf("%s, %s clients, %s", spaced(size), clients, proto.title)
				if clients == "1" {
					title = strings.Replace(title, "clients", "client", 1)
				}
				t := none
				switch {
				case proto.name != "http1":
				case clients == "1":
					t = map[string]target{"1KiB": atLeast(1.5), "1MiB": atLeast(2.5)}[size]
				case size == "1KiB":
					t = atLeast(1.3)
				}
				work := fmt.Sprintf("HTTP/size=%s/clients=%s/proto=%s", size, clients, proto.name)
				s.rows = append(s.rows, faster(title, work, "ns/op", "tcp", t))
				if size == "1KiB" && clients != "1" && proto.name == "http1" {
					s.rows = append(s.rows, faster(title, work, "ns/op", "unix", atLeast(1)))
				}
			}
		}
	}
	return s
}

func overTLS() section {
	s := section{title: "TLS", note: "crypto/tls over the connection: how many times the messages per second, and how many times shorter a round trip."}
	for _, size := range []string{"64B", "4KiB", "64KiB"} {
		s.rows = append(s.rows, faster("writes of "+spaced(size)+", TLS", "TLS/work=stream/size="+size, "ns/op", "tcp", none))
	}
	for _, size := range []string{"64B", "4KiB"} {
		s.rows = append(s.rows, faster(spaced(size)+", both awake, median, TLS", "TLS/work=echo/size="+size, "p50-ns", "tcp", none))
	}
	return s
}

func connecting() section {
	const one, fifty = "Dial/goroutines=1", "Dial/goroutines=50"
	s := section{title: "Connecting", note: "How many times the connections per second.", rows: []row{
		faster("dial, echo of 64 B, close, one after the other", one, "ns/op", "tcp", atLeast(3)),
		faster("dial, echo of 64 B, close, one after the other", one, "ns/op", "unix", atLeast(1.5)),
		faster("dial, echo of 64 B, close, from 50 goroutines", fifty, "ns/op", "tcp", atLeast(4)),
		faster("dial, echo of 64 B, close, from 50 goroutines", fifty, "ns/op", "unix", atLeast(2)),
	}}
	for _, size := range []string{"100KiB", "1MiB", "4MiB"} {
		title, work := "dial, echo of "+spaced(size)+", close, from 50 goroutines", fifty+"/size="+size
		s.rows = append(s.rows, faster(title, work, "ns/op", "tcp", none), faster(title, work, "ns/op", "unix", none))
	}
	return s
}

// unread is what a peer takes that is in no call.
func unread() section {
	s := section{title: "Written and not read", note: "How many times the Writes that a peer takes which reads nothing, before one waits."}
	for _, size := range []string{"1B", "4KiB"} {
		s.rows = append(s.rows, more("writes of "+spaced(size), "Unread/size="+size, "writes", "tcp", atLeast(0.5)))
	}
	return s
}

func besideBulk() section {
	const work = "Beside/size=64B"
	return section{title: "Beside a stream", note: "A round trip while another connection of the same processes is busy with Writes of 64 KiB: how many times shorter.", rows: []row{
		faster("64 B, median", work, "p50-ns", "tcp", none),
		faster("64 B, 99th percentile", work, "p99-ns", "tcp", atLeast(2)),
		faster("64 B, 99th percentile", work, "p99-ns", "unix", none),
	}}
}

func manyConnections() section {
	s := section{title: "Many connections", note: "How many times the rate, and how many times shorter the 99th percentile. " +
		"Connections are made by eight goroutines; in turn, eight goroutines use all of them one after the other."}
	for _, n := range []string{"1", "10", "100", "1000", "10000"} {
		title := grouped(n) + " open, "
		few, all := "Scale/conns="+n+"/active=few", "Scale/conns="+n+"/active=all"
		if n == "1" { // the first of a process tells nothing of the rate, and it is all there are
			s.rows = append(s.rows,
				faster(title+"echoes per second", few, "ns/op", "tcp", none),
				faster(title+"99th percentile", few, "p99-ns", "tcp", none))
			continue
		}
		overTCP, overUnix, inTurn := none, none, none
		switch n {
		case "100":
			inTurn = atLeast(2)
		case "1000":
			overTCP, overUnix, inTurn = atLeast(3), atLeast(2), atLeast(2)
		case "10000":
			inTurn = atLeast(1.5)
		}
		s.rows = append(s.rows,
			more(title+"rate of connecting", few, "conns/s", "tcp", overTCP),
			more(title+"rate of connecting", few, "conns/s", "unix", overUnix),
			faster(title+"8 active, echoes per second", few, "ns/op", "tcp", none),
			faster(title+"8 active, 99th percentile", few, "p99-ns", "tcp", none),
			faster(title+"all in turn, echoes per second", all, "ns/op", "tcp", inTurn),
			faster(title+"all in turn, 99th percentile", all, "p99-ns", "tcp", none))
		if inTurn != none {
			s.rows = append(s.rows, faster(title+"all in turn, echoes per second", all, "ns/op", "unix", atLeast(1.2)))
		}
	}
	return s
}

func busyProcessors() section {
	s := section{title: "Busy processors", note: "More connections busy at once than there are processors: how many times the messages per second, all together."}
	for _, each := range []string{"2", "4"} {
		for _, w := range []struct{ name, title string }{
			{"work=echo/size=64B", "echo of 64 B"}, {"work=stream/size=64B", "stream of 64 B"}, {"work=stream/size=64KiB", "stream of 64 KiB"},
		} {
			title, work := each+" connections a processor, "+w.title, "Busy/"+w.name+"/each="+each
			s.rows = append(s.rows,
				faster(title, work, "ns/op", "tcp", atLeast(1)),
				faster(title, work, "ns/op", "unix", none))
		}
	}
	for _, w := range []struct{ name, title string }{
		{"work=echo/size=64B", "echo of 64 B"}, {"work=echo/size=8KiB", "echo of 8 KiB"}, {"work=stream/size=64B", "stream of 64 B"},
	} {
		title, work := "1,000 connections, "+w.title, "Busy/"+w.name+"/conns=1000"
		s.rows = append(s.rows,
			faster(title, work, "ns/op", "tcp", atLeast(1)),
			faster(title, work, "ns/op", "unix", none))
	}
	return s
}

func idleConnections() section {
	const thousand, most = "Scale/conns=1000/active=few", "Scale/conns=10000/active=few"
	const ends = 2
	return section{title: "An idle connection", note: "What each end of one costs that has echoed once, 1,000 open; and 10,000 together.", rows: []row{
		counted("memory, KiB an end, a shared page once", thousand, "pss-B/conn", ends<<10, none),
		counted("resident, KiB an end, a shared page in either process", thousand, "rss-B/conn", ends<<10, none),
		countedOver("tcp", "memory, KiB an end, of TCP without its buffers", thousand, "pss-B/conn", ends<<10),
		countedOver("unix", "memory, KiB an end, of Unix sockets without theirs", thousand, "pss-B/conn", ends<<10),
		counted("rings and send buffers, KiB an end", thousand, "registered-B/conn", ends<<10, none),
		counted("Go heap and stacks, KiB an end", thousand, "heap-B/conn", ends<<10, none),
		counted("descriptors an end", thousand, "fds/conn", ends, atMost(0.1)),
		counted("mappings an end", thousand, "maps/conn", ends, none),
		counted("memory, KiB of both ends, without the application's goroutines", "Idle", "held-B/conn", 1<<10, atMost(4)),
		counted("10,000 at once: MB in all processes", most, "pss-MB", 1, atMost(120)),
		counted("10,000 at once: processors busy", most, "idle-cpu", 1, atMost(0.01)),
	}}
}

func zeroCopy() section {
	s := section{title: "Copies", note: "Bytes copied by the library for each byte moved, and those that it did not copy. " +
		"The software device itself moves a byte once, which on a NIC is DMA."}
	for _, api := range []struct {
		name, title string
		copied      float64
	}{
		{"Write", "Write to Read", 1},
		{"ReadFrom", "ReadFrom to WriteTo", 0},
		{"Reserve", "Reserve and Commit to Peek and Discard", 0},
	} {
		work := "Copies/api=" + api.name
		s.rows = append(s.rows,
			counted(api.title+": copied", work, "copied/B", 1, atMost(api.copied)),
			counted(api.title+": not copied", work, "placed/B", 1, none),
			counted(api.title+": rings and send buffers of both ends, KiB", work, "registered-B", 1<<10, none))
	}
	return s
}

func checksums() section {
	s := section{title: "Checksums", note: "The messages per second with `Dialer.Checksum` as a share of those without."}
	for _, size := range []string{"64B", "1KiB", "64KiB", "1MiB"} {
		work := "Checksum/size=" + size
		s.rows = append(s.rows, row{work: "writes of " + spaced(size), against: "without", values: func(res *results, procs string) []float64 {
			return res.sample(caseOf(work, procs, ours), "ns/op").over(res.sample(caseOf(work, procs, "checked"), "ns/op"))
		}})
	}
	return s
}

func perMessage() section {
	s := section{title: "What a message costs", note: "Allocations of both ends in one process; doorbells and waits of the writer."}
	for _, size := range []string{"64B", "64KiB", "1MiB"} {
		work, title := "Stream/size="+size, "stream of "+spaced(size)+": "
		s.rows = append(s.rows,
			counted(title+"allocations", work, "allocs/op", 1, atMost(0)),
			counted(title+"doorbells", work, "doorbells/op", 1, none),
			counted(title+"credits", work, "credits/op", 1, none),
			counted(title+"sleeps of the writer", work, "parks/op", 1, none))
	}
	s.rows = append(s.rows, counted("echo of 64 B: allocations", "Echo/size=64B", "allocs/op", 1, atMost(0)))
	return s
}

// spaced writes a size as people do.
func spaced(size string) string {
	i := strings.IndexFunc(size, func(r rune) bool { return r > '9' })
	return size[:i] + " " + size[i:]
}

// grouped writes a number with commas.
func grouped(n string) string {
	if len(n) <= 3 {
		return n
	}
	return grouped(n[:len(n)-3]) + "," + n[len(n)-3:]
}
