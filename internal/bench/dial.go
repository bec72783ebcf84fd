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
	message := echoOrder(size)
	back := make([][]byte, goroutines)
	each := func(share func(i int) int) {
		err := sharing(goroutines, func(i int) error {
			for range share(i) {
				if err := shortLived(at, transport, message, back[i]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			m.Fatal(err)
		}
	}
	each(func(i int) int {
		back[i] = make([]byte, size)
		return 1 // after which there is memory for what comes
	})
	m.ResetTimer()
	each(func(i int) int { return n/goroutines + min(max(n%goroutines-i, 0), 1) })
	m.StopTimer()
}

// shortLived makes a connection, sends a message and takes in what comes back.
func shortLived(at Site, transport string, message, back []byte) error {
	conn, err := at.dial(context.Background(), transport)
	if err != nil {
		return err
	}
	if _, err = conn.Write(message); err == nil {
		_, err = io.ReadFull(conn, back)
	}
	return errors.Join(err, conn.Close())
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
