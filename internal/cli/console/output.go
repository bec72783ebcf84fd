package console

import (
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// Output is the standard output of a program that notices when nothing can be written
// there any more. Its users print as ever, and ask Err when they are done or before
// something that takes long. Goroutines may share it.
type Output struct {
	w io.Writer

	mu  sync.Mutex
	err error // the first
}

// Stdout returns standard output. A pipe that nobody reads any more is an error of a
// write from then on; otherwise it would end the process, which says nothing.
func Stdout() *Output {
	signal.Ignore(syscall.SIGPIPE)
	return &Output{w: os.Stdout}
}

// Write writes to the output, after an error nothing any more.
func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.w.Write(b)
	o.err = err
	return n, err
}

// Err returns what the first write that failed failed with.
func (o *Output) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
