package rdmanet

import (
	"context"
	"runtime/trace"
)

// traceDial is what a dial is called in an execution trace (runtime/trace): a task with a
// region. Where nobody traces it costs a look at one word. internal/link traces the
// handshakes of a listener, and Writes that wait for the peer to read.
const traceDial = "rdmanet.Dial"

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
	ctx, task := trace.NewTask(ctx, traceDial)
	trace.Log(ctx, network, address)
	return ctx, tracedTask{task, trace.StartRegion(ctx, traceDial)}
}

func (t tracedTask) end() {
	if t.task != nil {
		t.region.End()
		t.task.End()
	}
}
