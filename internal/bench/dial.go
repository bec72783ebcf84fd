package bench

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
)

// Dials has goroutines make n connections together, each one after the other: dial, echo size bytes
// and close. Each has made one before.
func Dials(m Meter, n, goroutines, size int, at Site, transport string) {
	each := func(share func(i int) int) {
		if err := sharing(goroutines, func(i int) error { return shortLived(at, transport, share(i), size) }); err != nil {
			m.Fatal(err)
		}
	}
	each(func(int) int { return 1 }) // after which memory is there that many will use
	m.ResetTimer()
	each(func(i int) int { return n/goroutines + min(max(n%goroutines-i, 0), 1) })
	m.StopTimer()
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
