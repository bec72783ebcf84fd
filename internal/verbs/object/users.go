// Package object has what the drivers' verbs objects have in common: one that others were made
// from counts them, and cannot be destroyed while there are any.
package object

import (
	"sync"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// Users counts the objects that were made from another, as the QPs and MRs of a PD. The zero
// value counts none. Any goroutine may call its methods at any time.
type Users struct {
	mu     sync.Mutex
	n      int
	closed bool
}

// Hold counts one more. The error is verbs.ErrClosed if the object was closed.
func (u *Users) Hold() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return verbs.ErrClosed
	}
	u.n++
	return nil
}

// Release counts one less.
func (u *Users) Release() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.n--
}

// Count returns how many there are.
func (u *Users) Count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.n
}

// Close has Hold fail from now on, if destroy succeeds, which is given the count. Nobody is
// counted meanwhile. The error is that of destroy, or verbs.ErrClosed if it has succeeded before.
func (u *Users) Close(destroy func(users int) error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return verbs.ErrClosed
	}
	if err := destroy(u.n); err != nil {
		return err
	}
	u.closed = true
	return nil
}

// Create makes an object that counts as a user. If that fails it does not, and the object is the
// zero value, which is nil for an interface.
func Create[T any](u *Users, create func() (T, error)) (made T, err error) {
	if err := u.Hold(); err != nil {
		return made, err
	}
	o, err := create()
	if err != nil {
		u.Release()
		return made, err
	}
	return o, nil
}
