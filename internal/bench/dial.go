package bench

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
)

// Dials has goroutines make n connections together, each one after the other: dial, echo size bytes
// and close.
func Dials(m Meter, n, goroutines, size int, at Site, transport string) {
	share := (n + goroutines - 1) / goroutines
	m.ResetTimer()
	err := sharing(goroutines, func(int) error { return shortLived(at, transport, share, size) })
	m.StopTimer()
	if err != nil {
		m.Fatal(err)
	}
}

// shortLived makes n connections, one after the other.
func shortLived(at Site, transport string, n, size int) error {
	message := echoOrder(size)
	back := make([]byte, size)
	for range n {
		conn, err := at.dial(context.Background(), transport)
		if err != nil {
			return err
		}
		if _, err = conn.Write(message); err == nil {
			_, err = io.ReadFull(conn, back)
		}
		if err = errors.Join(err, conn.Close()); err != nil {
			return err
		}
	}
	return nil
}

// echoOrder is the order for an echo and the bytes to echo, which leave in one Write.
func echoOrder(size int) []byte {
	return append(job{kind: jobEchoAtOnce, size: size, count: 1}.bytes(), make([]byte, size)...)
}

// sharing has n goroutines do f together and returns the first error.
func sharing(n int, f func(i int) error) error {
	var failed atomic.Pointer[error]
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if err := f(i); err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}
