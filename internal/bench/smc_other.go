//go:build !linux

package bench

import (
	"context"
	"errors"
	"net"
)

func listenSMC(string) (net.Listener, error) { return nil, errors.ErrUnsupported }

func dialSMC(context.Context, string) (net.Conn, error) { return nil, errors.ErrUnsupported }
