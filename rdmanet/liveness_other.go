//go:build !linux

package rdmanet

import "errors"

// livePair is for Linux: elsewhere there are no connections by RDMA.
type livePair struct{}

func (st *stream) liveness() (int, error) { return -1, errors.ErrUnsupported }
func (st *stream) closeLiveness()         {}
