package rdmaprom

import (
	"github.com/rdmanet/go-rdmanet/rdmanet"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// What there is a counter for before there is anything to count: what happens as a rule. Others come to be
// with what they count.
var (
	// errnos are those that connections fail with.
	errnos = []string{"ECONNRESET", "ETIMEDOUT", "ECONNABORTED", "ENODEV"}

	// dialFailures are what dials fail with.
	dialFailures = []string{
		"timeout", "canceled", "other", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "EHOSTUNREACH", "ENETUNREACH",
		"EADDRINUSE", "EADDRNOTAVAIL", "EACCES", "ENODEV", "EMFILE", "ENOMEM",
	}

	// statuses are those of work requests by which a peer, or the way there, ends a connection.
	statuses = names(
		verbs.WCRetryExcErr, verbs.WCRNRRetryExcErr, verbs.WCWRFlushErr, verbs.WCRemAccessErr, verbs.WCRemInvReqErr, verbs.WCRemOpErr,
	)

	// dialFallbacks are all reasons of dials, and listenFallbacks those that a listener, which asks nobody, can have.
	dialFallbacks = names(
		rdmanet.FallbackNoDevice, rdmanet.FallbackNoRoute, rdmanet.FallbackRefused, rdmanet.FallbackDenied, rdmanet.FallbackVersion,
		rdmanet.FallbackUnreachable, rdmanet.FallbackSlow, rdmanet.FallbackRemembered, rdmanet.FallbackResources, rdmanet.FallbackFailed,
	)
	listenFallbacks = names(
		rdmanet.FallbackNoDevice, rdmanet.FallbackNoRoute, rdmanet.FallbackDenied, rdmanet.FallbackResources, rdmanet.FallbackFailed,
	)
)

func names[T interface{ String() string }](of ...T) []string {
	all := make([]string, len(of))
	for i, v := range of {
		all[i] = v.String()
	}
	return all
}
