// Package faulty is a device that fails, over a device of any other driver. It is for
// tests.
//
// Some of what it does a device may do at any time, and nobody may notice: completions,
// and events of the connection manager, come late and in another order where they belong
// to different queues; several show at once; sleepers are woken for nothing; a send
// queue is full when it holds what was asked for and not one request more. A Plan says
// how much of that there is, and a seed which.
//
// A device that a Plan has be asynchronous finds programs that change memory, or close its MR,
// before a request that sends from it has completed.
//
// The rest are failures, and happen when a test asks for them: a request that completes
// with an error, a CQ that overruns, notifications that do not come, the n-th resource
// that is not to be had, a Close that fails, an event of the connection manager that tells of a failure, a
// message of its that is lost, a device that is removed.
//
// What is random comes from one stream of numbers for each object, in the order in which
// the objects were made. So a seed has the same effect each time as far as goroutines run
// in the same order.
package faulty
