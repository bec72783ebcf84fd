package link

import (
	"github.com/rdmanet/go-rdmanet/internal/link/memory"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// What one end of a lane takes of a device of a network, with the defaults of a Config and one
// stream. Who compares the limits of a host with it, as cmd/rdmanet-doctor does, has it from here, and
// TestLaneCosts compares it with a lane.
const (
	LaneQPs = 1
	LaneCQs = 2
	// LaneMRs are the ring of records, the send memory and the first chunk of rings.
	LaneMRs = 3
	// LaneMRsBusy is what it comes to with a stream that is busy both ways: four more chunks for
	// rings of 64 KiB, 256 KiB, 1 MiB and 4 MiB, of which those that it has left are kept for a while, one for
	// more send memory, and as many as hold the Buffers from which it sends. Each 256 streams more take another.
	LaneMRsBusy = LaneMRs + 4 + mostStaging/memory.ChunkSize + maxSending*BufferSize/memory.ChunkSize

	// LaneMemory is registered beside the rings: records and send memory. Where doorbells are
	// SENDs, as on iWARP, their receives are some 2 KiB more.
	LaneMemory = (defaultReceives+1)/4*lane.RecordLen + firstStaging
	// LaneRings is the first chunk of rings. The software device, which pins nothing, has one of memory.ChunkSize.
	LaneRings = memory.FirstChunk
	// LaneQueues is what a device pins for the queues of a lane, by the formulas of mlx5's
	// provider: others differ.
	LaneQueues = 80 << 10
)
