// Package rdmaexpvar publishes the counters of package rdmanet among the variables of
// package expvar, which http.DefaultServeMux shows as JSON at /debug/vars:
//
//	rdmaexpvar.Publish("rdmanet")
//
// It is a module of its own because importing expvar has a program serve /debug/vars
// on http.DefaultServeMux, which is for the program to choose.
package rdmaexpvar

import (
	"expvar"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// Publish publishes the process's rdmanet.Stats under name. They are read whenever the
// variables are shown. Like expvar.Publish it panics if the name is taken.
func Publish(name string) { expvar.Publish(name, Var()) }

// Var is the variable that Publish publishes, for an expvar.Map of one's own. Durations in it are
// nanoseconds.
func Var() expvar.Var { return expvar.Func(func() any { return rdmanet.ReadStats() }) }
