package verbs

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLibraryError(t *testing.T) {
	cause := errors.New("cannot open shared object file")
	var err error = &LibraryError{Library: "libfast.so.1", Package: "libfast1 fast-providers", Err: cause}
	assert.EqualError(t, err, "libfast.so.1 cannot be used (on Debian and Ubuntu: apt-get install libfast1 fast-providers): cannot open shared object file")
	assert.ErrorIs(t, err, ErrNoDevice)
	assert.ErrorIs(t, err, cause)
	assert.NotErrorIs(t, err, ErrNotSupported)
}
