// Package rdmaprom gives the counters of package rdmanet to Prometheus:
//
//	prometheus.MustRegister(rdmaprom.NewCollector())
//
// docs/OPERATIONS.md lists the metrics. It is a module of its own so that programs
// which do not use Prometheus do not depend on its client.
package rdmaprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// NewCollector returns a collector of the process's rdmanet.Stats, which it reads at
// every scrape. A registry takes one of them.
func NewCollector() prometheus.Collector { return collector{rdmanet.ReadStats} }

type collector struct{ read func() rdmanet.Stats }

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range deviceMetrics {
		ch <- m.desc
	}
	for _, m := range listenerMetrics {
		ch <- m.desc
	}
	for _, desc := range []*prometheus.Desc{
		connections, opened, lanes, lanesOpened, connErrors, failedWRs, dialErrors, fallbacks, accepted, handshakes, registered, registeredLimit,
	} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	s := c.read()
	for i := range s.Devices {
		collectDevice(ch, &s.Devices[i])
	}
	for _, m := range listenerMetrics {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(&s))
	}
	countsFrom(ch, dialFailures, dialErrors, s.DialErrors)
	countsFrom(ch, dialFallbacks, fallbacks, s.DialFallbacks, "dial")
	countsFrom(ch, listenFallbacks, fallbacks, s.ListenFallbacks, "listen")
	l := &s.Listening
	counts(ch, accepted, map[string]uint64{"rdma": l.Accepted, "tcp": l.AcceptedTCP})
	counts(ch, handshakes, map[string]uint64{
		"established": l.Established, "refused": l.Refused, "failed": l.Failed, "evicted": l.Evicted,
		"timeout": l.TimedOut, "malformed": l.Malformed, "denied": l.Denied,
	})
	ch <- prometheus.MustNewConstMetric(registered, prometheus.GaugeValue, float64(s.RegisteredBytes))
	ch <- prometheus.MustNewConstMetric(registeredLimit, prometheus.GaugeValue, float64(s.RegisteredLimit))
}

func collectDevice(ch chan<- prometheus.Metric, d *rdmanet.DeviceStats) {
	for _, n := range []struct {
		of          rdmanet.ConnCount
		open, total *prometheus.Desc
		direction   string
	}{
		{d.Dialled, connections, opened, "dialled"}, {d.Accepted, connections, opened, "accepted"},
		{d.Lanes.Dialled, lanes, lanesOpened, "dialled"}, {d.Lanes.Accepted, lanes, lanesOpened, "accepted"},
	} {
		ch <- prometheus.MustNewConstMetric(n.open, prometheus.GaugeValue, float64(n.of.Open), d.Device, n.direction)
		ch <- prometheus.MustNewConstMetric(n.total, prometheus.CounterValue, float64(n.of.Total), d.Device, n.direction)
	}
	for _, m := range deviceMetrics {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(d), d.Device)
	}
	countsFrom(ch, errnos, connErrors, d.Errors, d.Device)
	countsFrom(ch, statuses, failedWRs, d.FailedWRs, d.Device)
}

// countsFrom is counts that also has those of expected which are 0: of a counter that comes to be with the
// first failure rate sees only the second.
func countsFrom(ch chan<- prometheus.Metric, expected []string, desc *prometheus.Desc, m map[string]uint64, labels ...string) {
	for _, key := range expected {
		if m[key] == 0 {
			counts(ch, desc, map[string]uint64{key: 0}, labels...)
		}
	}
	counts(ch, desc, m, labels...)
}

// counts gives a counter for each key of m, which is the last label.
func counts(ch chan<- prometheus.Metric, desc *prometheus.Desc, m map[string]uint64, labels ...string) {
	for key, n := range m {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), append(labels, key)...)
	}
}
