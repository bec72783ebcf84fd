package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/rdmanet/go-rdmanet/internal/cli/child"
	"github.com/rdmanet/go-rdmanet/internal/cli/console"
)

// serve echoes to every client until ctx is done. It is written as any TCP
// server is: a listener, and a goroutine per connection.
func serve(ctx context.Context, opt options) error {
	ctx, cancel := child.WithParent(ctx)
	defer cancel()
	l, err := opt.Listen(ctx, opt.listen)
	if err != nil {
		return err
	}
	if err := child.Announce(opt.out, l.Addr().String()); err != nil {
		_ = l.Close()
		return err
	}
	var conns sync.WaitGroup
	defer conns.Wait()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil && errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return errors.Join(err, l.Close())
		}
		conns.Go(func() {
			// A server that ends does not wait for its clients to go.
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			echo(conn, opt.out)
		})
	}
}

// echo returns what it reads until the client says that nothing more will come, and
// logs how it went.
func echo(conn net.Conn, log io.Writer) {
	defer conn.Close()
	n, err := io.Copy(conn, conn)
	outcome := "closed"
	if err != nil {
		outcome = err.Error()
	}
	fmt.Fprintf(log, "%s: %s echoed, %s\n", conn.RemoteAddr(), console.Size(n), outcome)
}
