package link

import (
	"context"
	"net/netip"
	"runtime/trace"
)

// traceStall begins the region of a Write that waits. Names are those of connections: package
// rdmanet tells them.
func traceStall() *trace.Region { return trace.StartRegion(context.Background(), "rdmanet.stall") }

// An acceptTask is the handshake of a dialer's lane in an execution trace.
type acceptTask struct {
	task   *trace.Task
	region *trace.Region
}

func traceAccept(at netip.AddrPort) acceptTask {
	const name = "rdmanet.Accept"
	ctx, task := trace.NewTask(context.Background(), name)
	trace.Log(ctx, "lane", at.String())
	return acceptTask{task, trace.StartRegion(ctx, name)}
}

func (t acceptTask) end() {
	t.region.End()
	t.task.End()
}
