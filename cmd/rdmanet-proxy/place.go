package main

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/rdmanet/go-rdmanet/internal/cli/endpoint"
)

// A place is one side of the proxy.
type place struct {
	endpoint.Config
	address string
}

// String writes the place as set reads it.
func (p place) String() string { return scheme(p.Network) + "://" + p.address }

// ofSchemes are the networks that the schemes stand for. TCP is what programs speak that
// know nothing of RDMA: the kernel's.
var ofSchemes = map[string]string{
	"tcp": "kernel-tcp", "tcp4": "kernel-tcp4", "tcp6": "kernel-tcp6", "unix": "unix",
	"rdma": "rdma", "rdma4": "rdma4", "rdma6": "rdma6",
	"rdma+tcp": "tcp", "rdma+tcp4": "tcp4", "rdma+tcp6": "tcp6",
}

const schemes = "tcp, tcp4, tcp6, unix, rdma, rdma4, rdma6, rdma+tcp, rdma+tcp4 or rdma+tcp6"

// scheme is the scheme that stands for a network.
func scheme(network string) string {
	for s, n := range ofSchemes {
		if n == network {
			return s
		}
	}
	return network
}

// set reads a place as the flags have it, scheme://address.
func (p *place) set(s string) error {
	scheme, address, ok := strings.Cut(s, "://")
	if !ok {
		return fmt.Errorf("write it as scheme://address, as tcp://%s", s)
	}
	network, ok := ofSchemes[scheme]
	if !ok {
		return fmt.Errorf("unknown scheme %q: use %s", scheme, schemes)
	}
	p.Network, p.address = network, address
	switch {
	case address == "":
		return errors.New("the address is missing")
	case network != "unix":
		if _, _, err := net.SplitHostPort(address); err != nil {
			return err
		}
	}
	return nil
}
