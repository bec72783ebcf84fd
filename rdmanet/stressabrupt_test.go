package rdmanet

import (
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestStressAbrupt has connections end in the middle of things, by every way there
// is: only the errors that such an end may have are seen.
func TestStressAbrupt(t *testing.T) {
	limit := time.Duration(slice(int(time.Second)))
	eachFlavour(t, func(t *testing.T, fl flavour) {
		fl.dialer.Logger = slog.New(slog.DiscardHandler)
		fl.listen.Logger = fl.dialer.Logger
		until := time.Now().Add(limit)
		within(t, limit+lasting, "the connections", func() {
			var all sync.WaitGroup
			for seed := range 8 {
				all.Go(func() {
					for round := seed; time.Now().Before(until); round += 8 {
						if err := abruptOne(fl, uint64(round)); err != nil {
							t.Errorf("seed %d: %v", round, err)
							return
						}
					}
				})
			}
			all.Wait()
		})
	})
}

// abruptOne ends a connection under load.
func abruptOne(fl flavour, seed uint64) error {
	client, server, err := dialPair(&fl.dialer, &fl.listen)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(seed, 9))
	errs := make(chan error, 4)
	for _, c := range []*Conn{client, server} {
		buf := make([]byte, 1+rng.IntN(1<<rng.IntN(17)))
		go func() {
			for {
				if _, err := c.Write(buf); err != nil {
					errs <- err
					return
				}
			}
		}()
		go func() {
			_, err := io.Copy(io.Discard, struct{ io.Reader }{c})
			errs <- err
		}()
	}
	first, second := client, server
	if rng.IntN(2) == 0 {
		first, second = server, client
	}
	for range rng.IntN(30) {
		dawdle(rng)
		runtime.Gosched()
	}
	switch rng.IntN(4) {
	case 0:
		err = first.SetLinger(0)
	case 1:
		err = first.CloseWrite()
	case 2:
		err = first.SetDeadline(time.Unix(1, 0))
	}
	err = errors.Join(err, first.Close())
	if rng.IntN(2) == 0 {
		err = errors.Join(err, second.Close())
	}
	for range 4 {
		if e := <-errs; e != nil && !isOrdinaryEnd(e) {
			err = errors.Join(err, e)
		}
	}
	_ = second.Close()
	return err
}

// isOrdinaryEnd reports whether an error is one that connections end with.
func isOrdinaryEnd(err error) bool {
	var op *net.OpError
	if !errors.As(err, &op) {
		return false
	}
	for _, target := range ordinaryEnds {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

var ordinaryEnds = []error{net.ErrClosed, os.ErrDeadlineExceeded, syscall.ECONNRESET, syscall.EPIPE}
