package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"

	"github.com/rdmanet/go-rdmanet/internal/cli/console"
	"github.com/rdmanet/go-rdmanet/internal/cli/endpoint"
)

// pipe sends in through the connection and writes what comes back to out. Both
// directions run at once: what is sent may exceed what the path can hold.
func pipe(conn net.Conn, in io.Reader, out io.Writer) error {
	sent, received := sha256.New(), sha256.New()
	var finished atomic.Bool
	sending := make(chan error, 1)
	go func() {
		_, err := io.Copy(conn, io.TeeReader(in, sent))
		if err == nil {
			finished.Store(true)
			err = endpoint.CloseWrite(conn)
		}
		sending <- err
	}()
	n, err := io.Copy(io.MultiWriter(out, received), conn)
	if err != nil {
		return err
	}
	// The end of what comes back follows the end of what was sent, or the server
	// has gone: then the sender may be waiting for input that no longer matters.
	if !finished.Load() {
		return fmt.Errorf("the server closed the connection after %s: %w", console.Size(n), io.ErrUnexpectedEOF)
	}
	if err := <-sending; err != nil {
		return err
	}
	if [sha256.Size]byte(sent.Sum(nil)) != [sha256.Size]byte(received.Sum(nil)) {
		return fmt.Errorf("%s came back, but not what was sent", console.Size(n))
	}
	fmt.Fprintf(os.Stderr, "%s echoed, unchanged\n", console.Size(n))
	return nil
}
