package verbs

import "fmt"

// A Library is a shared library of the system that a driver loads when it is
// first needed.
type Library struct {
	Name string // "libibverbs.so.1"
	Path string // the file that was loaded, "" if none was
	Err  error  // why it cannot be used, a *LibraryError; nil if it can
}

// A LibraryError is the error about a library of the system that cannot be used. It says what to
// install.
type LibraryError struct {
	Library string // "libibverbs.so.1"
	Package string // Debian's packages that bring it, separated by spaces
	Err     error  // what the dynamic linker said
}

func (e *LibraryError) Error() string {
	return fmt.Sprintf("%s cannot be used (on Debian and Ubuntu: apt-get install %s): %v", e.Library, e.Package, e.Err)
}

// Unwrap returns ErrNoDevice, since without the library there is none, and the
// dynamic linker's error.
func (e *LibraryError) Unwrap() []error { return []error{ErrNoDevice, e.Err} }
