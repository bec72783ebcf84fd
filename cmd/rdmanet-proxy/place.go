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
func (p place) String() string { return p.Network + "://" + p.address }

// set reads a place as the flags have it, scheme://address.
func (p *place) set(s string) error {
	network, address, ok := strings.Cut(s, "://")
	if !ok {
		return fmt.Errorf("write it as scheme://address, as tcp://%s", s)
	}
	p.Network, p.address = network, address
	if err := p.Check(); err != nil {
		return err
	}
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
