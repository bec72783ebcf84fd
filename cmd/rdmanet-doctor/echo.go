package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/cli/endpoint"
	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// echoSize is how much is sent: more than every ring and buffer on the way holds.
const echoSize = 1 << 20

var errWrongBytes = errors.New("what came back is not what was sent")

// echo connects this process to itself over a device, sends data there and back, and
// measures what a connection costs. It ends when ctx does.
func echo(ctx context.Context, device string, at netip.Addr) (outcome, error) {
	network := endpoint.Config{Network: "rdma", Device: device}
	l, err := network.Listen(ctx, netip.AddrPortFrom(at, 0).String())
	if err != nil {
		return outcome{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer cancel()
	context.AfterFunc(ctx, func() { _ = l.Close() })
	serving.Go(func() { serve(ctx, l, &serving) })

	// With the first connection the process opens what it opens once for a device. It has a lane to
	// itself, as one with checksums, so that the second brings up another.
	first, err := (&rdmanet.Dialer{Device: device, Checksum: true}).DialContext(ctx, "rdma", l.Addr().String())
	if err != nil {
		return outcome{}, err
	}
	defer first.Close()
	if err := exchange(ctx, first, echoSize); err != nil {
		return outcome{}, err
	}
	before := settledUsage()
	start := time.Now()
	second, err := network.Dial(ctx, l.Addr().String())
	if err != nil {
		return outcome{}, err
	}
	defer second.Close()
	took := time.Since(start)
	if err := exchange(ctx, second, 1); err != nil {
		return outcome{}, err
	}
	after := usage() // while its rings are small
	start = time.Now()
	if err := exchange(ctx, second, echoSize); err != nil {
		return outcome{}, err
	}
	took += time.Since(start)
	return outcome{echoSize, took, costs{
		descriptors: (after.descriptors - before.descriptors + 1) / 2,
		locked:      (after.locked - before.locked + 1) / 2,
	}}, nil
}

// serve echoes to every client until ctx is done.
func serve(ctx context.Context, l net.Listener, serving *sync.WaitGroup) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		serving.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			_, _ = io.Copy(conn, conn) // the client sees how it went
		})
	}
}

// exchange sends so many random bytes and compares the hash of what comes back. The connection
// stays open.
func exchange(ctx context.Context, conn net.Conn, size int64) error {
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	var seed [32]byte
	for i := range seed {
		seed[i] = byte(rand.Uint32())
	}
	sent, received := sha256.New(), sha256.New()
	sending := make(chan error, 1)
	go func() {
		_, err := io.CopyN(conn, io.TeeReader(rand.NewChaCha8(seed), sent), size)
		if err != nil {
			_ = conn.SetDeadline(time.Unix(1, 0)) // what does not leave does not come back
		}
		sending <- err
	}()
	_, err := io.CopyN(received, conn, size)
	if err != nil {
		_ = conn.SetDeadline(time.Unix(1, 0))
	}
	if sendErr := <-sending; sendErr != nil {
		err = sendErr
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err == nil && [sha256.Size]byte(sent.Sum(nil)) != [sha256.Size]byte(received.Sum(nil)) {
		err = errWrongBytes
	}
	return err
}

// settledUsage is usage when the lanes of the device before have ended, which they do unseen.
func settledUsage() costs {
	const settled, tries = 5, 100
	last := usage()
	for same, try := 0, 0; same < settled && try < tries; try++ {
		time.Sleep(10 * time.Millisecond)
		now := usage()
		if same++; now != last {
			same = 0
		}
		last = now
	}
	return last
}

// usage is what the process has open and locked.
func usage() (c costs) {
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		c.descriptors = len(open)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return c
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmPin:"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			c.locked = kib << 10
		}
	}
	return c
}
