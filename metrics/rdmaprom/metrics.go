package rdmaprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("rdmanet_"+name, help, labels, nil)
}

var (
	connections = desc("connections", "Connections that are open.", "device", "direction")
	opened      = desc("connections_opened_total", "Connections that were established.", "device", "direction")
	connErrors  = desc("connection_errors_total", "Connections that failed, by errno.", "device", "errno")
	failedWRs   = desc("failed_work_requests_total", "Connections whose work requests failed, by completion status.", "device", "status")
	lanes       = desc("lanes", "Lanes, which are QPs that carry connections.", "device", "direction")
	lanesOpened = desc("lanes_opened_total", "Lanes that began to come up.", "device", "direction")
	dialErrors  = desc("dial_errors_total", "Dials that failed, by errno.", "error")
	fallbacks   = desc("fallbacks_total", "Dials and listeners on networks of TCP that came to do without RDMA.", "op", "reason")
	accepted    = desc("accepted_total", "Connections that Accept has returned.", "transport")
	handshakes  = desc("handshakes_total", "Clients of listeners, by what became of them.", "outcome")

	registered      = desc("registered_bytes", "Memory of receive rings and send buffers.")
	registeredLimit = desc("registered_limit_bytes", "What receive rings and send buffers may take together.")
)

// A metric is a number of T: of a device, or of the process.
type metric[T any] struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*T) float64
}

func counter(name, help string, value func(*rdmanet.DeviceStats) uint64) metric[rdmanet.DeviceStats] {
	return metric[rdmanet.DeviceStats]{
		desc(name, help, "device"), prometheus.CounterValue,
		func(d *rdmanet.DeviceStats) float64 { return float64(value(d)) },
	}
}

var deviceMetrics = []metric[rdmanet.DeviceStats]{
	counter("read_bytes_total", "Bytes that applications have read.", func(d *rdmanet.DeviceStats) uint64 { return d.BytesRead }),
	counter("written_bytes_total", "Bytes that applications have written.", func(d *rdmanet.DeviceStats) uint64 { return d.BytesWritten }),
	counter("messages_received_total", "Data messages received.", func(d *rdmanet.DeviceStats) uint64 { return d.MessagesReceived }),
	counter("messages_sent_total", "Data messages sent.", func(d *rdmanet.DeviceStats) uint64 { return d.MessagesSent }),
	counter("doorbells_received_total", "Immediates received, of every kind.", func(d *rdmanet.DeviceStats) uint64 { return d.DoorbellsReceived }),
	counter("doorbells_sent_total", "Immediates sent, of every kind.", func(d *rdmanet.DeviceStats) uint64 { return d.DoorbellsSent }),
	counter("credits_received_total", "Credits received.", func(d *rdmanet.DeviceStats) uint64 { return d.CreditsReceived }),
	counter("credits_sent_total", "Credits sent.", func(d *rdmanet.DeviceStats) uint64 { return d.CreditsSent }),
	counter("keepalives_sent_total", "Heartbeats sent to silent peers.", func(d *rdmanet.DeviceStats) uint64 { return d.KeepAlivesSent }),
	counter("wakeups_sent_total", "Messages for which a sleeping peer was woken.", func(d *rdmanet.DeviceStats) uint64 { return d.WakeupsSent }),
	counter("wakeups_suppressed_total", "Messages for which no peer had to be woken.", func(d *rdmanet.DeviceStats) uint64 { return d.WakeupsSuppressed }),
	counter("spins_total", "Waits that ended while polling.", func(d *rdmanet.DeviceStats) uint64 { return d.Spins }),
	counter("parks_total", "Waits that went to sleep.", func(d *rdmanet.DeviceStats) uint64 { return d.Parks }),
	counter("copied_bytes_total", "Bytes copied between applications and registered memory.", func(d *rdmanet.DeviceStats) uint64 { return d.BytesCopied }),
	counter("placed_bytes_total", "Bytes that needed no such copy.", func(d *rdmanet.DeviceStats) uint64 { return d.BytesPlaced }),
	counter("rings_grown_total", "Enlargements of receive rings.", func(d *rdmanet.DeviceStats) uint64 { return d.RingsGrown }),
	counter("checksum_errors_total", "Messages that did not arrive as they were sent.", func(d *rdmanet.DeviceStats) uint64 { return d.ChecksumErrors }),
	counter("lane_messages_received_total", "Messages of every kind that lanes received.", func(d *rdmanet.DeviceStats) uint64 { return d.Lanes.MessagesReceived }),
	counter("lane_messages_sent_total", "Messages of every kind that lanes sent.", func(d *rdmanet.DeviceStats) uint64 { return d.Lanes.MessagesSent }),
	counter("lane_wakeups_total", "Times that a lane woke where no Read or Write was there to take in what arrived.", func(d *rdmanet.DeviceStats) uint64 { return d.Lanes.Wakeups }),
	counter("lane_rings_offered_total", "Receive rings of another size that lanes offered to their peers.", func(d *rdmanet.DeviceStats) uint64 { return d.Lanes.RingsOffered }),
	counter("lane_memory_refusals_total", "Times that a lane got no memory for a ring, or no descriptor or room to map one of the peer's.", func(d *rdmanet.DeviceStats) uint64 { return d.Lanes.MemoryRefusals }),
	counter("stalls_total", "Writes that waited for the peer to read.", func(d *rdmanet.DeviceStats) uint64 { return d.CreditStalls }),
	{
		desc("stall_seconds_total", "Time for which Writes waited for the peer to read.", "device"), prometheus.CounterValue,
		func(d *rdmanet.DeviceStats) float64 { return d.CreditStallTime.Seconds() },
	},
	{
		desc("receive_ring_bytes", "Size of the receive rings of open connections together.", "device"), prometheus.GaugeValue,
		func(d *rdmanet.DeviceStats) float64 { return float64(d.ReadBuffer) },
	},
	{
		desc("links", "Pairs of a dialing process and a listener that have lanes.", "device"), prometheus.GaugeValue,
		func(d *rdmanet.DeviceStats) float64 { return float64(d.Lanes.Links) },
	},
	{
		desc("lane_places", "Connections that may be opened without asking the listener.", "device"), prometheus.GaugeValue,
		func(d *rdmanet.DeviceStats) float64 { return float64(d.Lanes.Places) },
	},
	{
		desc("waiting_dials", "Dials that wait for a place.", "device"), prometheus.GaugeValue,
		func(d *rdmanet.DeviceStats) float64 { return float64(d.Lanes.Waiting) },
	},
}

var listenerMetrics = []metric[rdmanet.Stats]{
	{
		desc("shortages_total", "Times that clients had to wait because a listener lacked descriptors or memory."), prometheus.CounterValue,
		func(s *rdmanet.Stats) float64 { return float64(s.Listening.Shortages) },
	},
	{
		desc("listeners", "Listeners that are open."), prometheus.GaugeValue,
		func(s *rdmanet.Stats) float64 { return float64(s.Listeners) },
	},
	{
		desc("accept_queue_connections", "Connections that wait for Accept."), prometheus.GaugeValue,
		func(s *rdmanet.Stats) float64 { return float64(s.Listening.Pending) },
	},
	{
		desc("half_open_connections", "Clients that have not asked for anything yet."), prometheus.GaugeValue,
		func(s *rdmanet.Stats) float64 { return float64(s.Listening.HalfOpen) },
	},
}
