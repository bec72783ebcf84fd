package console

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
)

// fullAfter is a disk with so much room left.
type fullAfter struct {
	bytes.Buffer
	room int
}

func (f *fullAfter) Write(b []byte) (int, error) {
	if f.Len()+len(b) > f.room {
		return 0, io.ErrShortWrite
	}
	return f.Buffer.Write(b)
}

func TestOutputKeepsItsFirstError(t *testing.T) {
	disk := &fullAfter{room: 6}
	out := &Output{w: disk}
	fmt.Fprintln(out, "fits")
	assert.NoError(t, out.Err())
	fmt.Fprintln(out, "does not")
	assert.ErrorIs(t, out.Err(), io.ErrShortWrite)
	_, err := out.Write([]byte("x"))
	assert.ErrorIs(t, err, io.ErrShortWrite, "what comes behind a gap is not written")
	assert.Equal(t, "fits\n", disk.String())
}
