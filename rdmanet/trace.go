package rdmanet

import (
	"context"
	"runtime/trace"
)

// What is seen in an execution trace (runtime/trace): a task with a region for each
// dial and for each handshake of a listener, and a region for each Write that waits for
// the peer to read. Where nobody traces, each costs a look at one word.
const (
	traceDial   = "rdmanet.Dial"
	traceAccept = "rdmanet.Accept"
	traceStall  = "rdmanet.stall"
)

// A tracedTask is a task in an execution trace, or nothing.
type tracedTask struct {
	task   *trace.Task
	region *trace.Region
}

// traceDialling begins the task of a dial, on the goroutine that also ends it.
func traceDialling(ctx context.Context, network, address string) (context.Context, tracedTask) {
	if !trace.IsEnabled() {
		return ctx, tracedTask{}
	}
	return startTask(ctx, traceDial, network, address)
}

// traceServing is traceDialling for the handshake of a client.
func (l *Listener) traceServing() tracedTask {
	if !trace.IsEnabled() {
		return tracedTask{}
	}
	_, t := startTask(l.ctx, traceAccept, l.network, l.addr.String())
	return t
}

// traceStalling begins the region of a Write that waits.
func traceStalling() *trace.Region { return trace.StartRegion(context.Background(), traceStall) }

func startTask(ctx context.Context, name, network, address string) (context.Context, tracedTask) {
	ctx, task := trace.NewTask(ctx, name)
	trace.Log(ctx, network, address)
	return ctx, tracedTask{task, trace.StartRegion(ctx, name)}
}

func (t tracedTask) end() {
	if t.task != nil {
		t.region.End()
		t.task.End()
	}
}
