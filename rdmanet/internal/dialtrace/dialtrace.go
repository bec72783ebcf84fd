// Package dialtrace carries what is to be told of the attempts of a dial by RDMA in the dial's
// context, as package net carries what is told of those by TCP.
package dialtrace

import "context"

// Hooks are called before and after each attempt, with the network and the address that was
// dialled. Any may be nil. They may be called on several goroutines at once.
type Hooks struct {
	ConnectStart func(network, address string)
	ConnectDone  func(network, address string, err error)

	// Lookup returns the context for looking names up, where ConnectStart and ConnectDone, which package
	// net calls, too, are not to be told of connections to name servers.
	Lookup func(context.Context) context.Context
}

type key struct{}

// With returns ctx with the hooks.
func With(ctx context.Context, h *Hooks) context.Context { return context.WithValue(ctx, key{}, h) }

// Lookup returns the context in which a dial with ctx is to look names up.
func Lookup(ctx context.Context) context.Context {
	if h, _ := ctx.Value(key{}).(*Hooks); h != nil && h.Lookup != nil {
		return h.Lookup(ctx)
	}
	return ctx
}

// Connect runs dial between the hooks of ctx, if it has some.
func Connect[C any](ctx context.Context, network string, address interface{ String() string }, dial func() (C, error)) (C, error) {
	h, _ := ctx.Value(key{}).(*Hooks)
	if h == nil {
		return dial()
	}
	at := address.String()
	if h.ConnectStart != nil {
		h.ConnectStart(network, at)
	}
	c, err := dial()
	if h.ConnectDone != nil {
		h.ConnectDone(network, at, err)
	}
	return c, err
}
