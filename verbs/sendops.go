package verbs

import "fmt"

// SendOps is a set of operations of a send queue. The empty set stands for all that the
// device has.
type SendOps uint32

// NewSendOps is the set of some operations.
func NewSendOps(ops ...WROpcode) (s SendOps) {
	for _, op := range ops {
		s |= 1 << op
	}
	return s
}

// Has reports whether an operation may be posted.
func (s SendOps) Has(op WROpcode) bool { return s == 0 || s>>op&1 != 0 }

// Refuse is the error of the post of an operation that is not in the set.
func (s SendOps) Refuse(op WROpcode) error {
	return fmt.Errorf("%w: %v to a QP that was made without it", ErrInvalid, op)
}
