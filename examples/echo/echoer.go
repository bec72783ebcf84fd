package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"sync/atomic"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/cli/console"
	"github.com/rdmanet/go-rdmanet/internal/latency"
)

const (
	// stall is how long the server may keep a byte before the client gives up. The kernel's TCP may drop what comes
	// faster than it is read, even within a host, and sends it again after pauses that double.
	stall = 30 * time.Second
	// fits is the size of message that the path holds as a whole. The server returns
	// bytes as they come, so whoever writes more than that without reading what
	// comes back waits for a server that waits for him.
	fits = 16 << 10
	// clockEvery is how many messages of a stream go by between looks at the clock, and
	// clockBytes after how many bytes it is looked at in any case.
	clockEvery = 64
	clockBytes = 1 << 20
)

// echoer is the client's end: where the stream stands, and what it must look like.
type echoer struct {
	ctx      context.Context
	network  string
	conn     net.Conn
	progress *console.Progress
	pattern  pattern
	pos      int64
	buf      []byte
	results  []result // one for each size
}

// A result is what messages of one size came to.
type result struct {
	trips latency.Histogram
	streamed
}

// streamed is what a stream came to.
type streamed struct {
	bytes    int64
	messages int
	took     time.Duration
}

// throughput is in bytes per second, one way.
func (s *streamed) throughput() float64 { return float64(s.bytes) / s.took.Seconds() }

// A turn is a part of a measurement: so many messages, or as many as fit in a time.
type turn struct {
	limit     int           // of messages; math.MaxInt if there is none
	time      time.Duration // without a limit
	part, all int           // it is the part-th, from 0, of so many on all networks
}

// over reports whether a turn that began at start is over after so many messages.
func (t turn) over(messages int, start, now time.Time) bool {
	return messages == t.limit || t.limit == math.MaxInt && now.Sub(start) >= t.time
}

// share is how far all turns are, from 0 to 1.
func (t turn) share(messages int, took time.Duration) float64 {
	share := float64(messages) / float64(t.limit)
	if t.limit == math.MaxInt {
		share = float64(took) / float64(t.time)
	}
	return (float64(t.part) + min(share, 1)) / float64(t.all)
}

// roundTrips sends a message, waits until all of it came back, and so on.
func (e *echoer) roundTrips(size int, t turn, trips *latency.Histogram) (err error) {
	start := time.Now()
	last := start
	if err := e.extend(start); err != nil {
		return err
	}
	send := e.conn.Write
	if size > fits {
		w := newBackgroundWriter(e.conn)
		defer func() {
			if writeErr := w.stop(); writeErr != nil {
				err = writeErr
			}
		}()
		send = w.write
	}
	for i := 1; ; i++ {
		if _, err := send(e.pattern.at(e.pos, size)); err != nil {
			return err
		}
		if _, err := io.ReadFull(e.conn, e.buf[:size]); err != nil {
			return err
		}
		now := time.Now()
		trips.Record(now.Sub(last))
		if err := e.pattern.check(e.pos, e.buf[:size]); err != nil {
			return err
		}
		e.pos += int64(size)
		if e.progress.Due(now) {
			if err := e.report(t, start, now, i, size); err != nil {
				return err
			}
		}
		if t.over(i, start, now) {
			return nil
		}
		last = time.Now()
	}
}

// backgroundWriter writes while its owner reads.
type backgroundWriter struct {
	messages chan []byte
	failed   chan error
}

func newBackgroundWriter(conn net.Conn) *backgroundWriter {
	w := &backgroundWriter{make(chan []byte), make(chan error, 1)}
	go func() {
		defer close(w.failed)
		for m := range w.messages {
			if _, err := conn.Write(m); err != nil {
				w.failed <- err
				// The owner is not left waiting for what will never come back.
				_ = conn.SetReadDeadline(time.Unix(1, 0))
				return
			}
		}
	}()
	return w
}

// write starts to write m, which must not change until all of it came back.
func (w *backgroundWriter) write(m []byte) (int, error) {
	select {
	case w.messages <- m:
		return len(m), nil
	case err := <-w.failed:
		return 0, err
	}
}

// stop waits for the writer to end and returns what it failed with.
func (w *backgroundWriter) stop() error {
	close(w.messages)
	return <-w.failed
}

// stream sends message after message while it takes back what returns, and adds what
// that came to.
func (e *echoer) stream(size int, t turn, sum *streamed) error {
	start := time.Now()
	if err := e.extend(start); err != nil {
		return err
	}
	// total becomes known before the last message leaves, so that the reader is
	// never left waiting for bytes that nobody sends.
	var total atomic.Int64
	total.Store(math.MaxInt64)
	sending := make(chan error, 1)
	go func() { sending <- e.send(size, t, start, &total) }()
	err := e.receive(size, t, start, &total)
	if err != nil {
		// The sender may be blocked behind the failure.
		_ = e.conn.SetDeadline(time.Unix(1, 0))
	}
	if sendErr := <-sending; err == nil {
		err = sendErr
	}
	if err != nil {
		return err
	}
	n := total.Load()
	sum.bytes += n
	sum.messages += int(n) / size
	sum.took += time.Since(start)
	return nil
}

func (e *echoer) send(size int, t turn, start time.Time, total *atomic.Int64) error {
	every := max(1, min(clockEvery, clockBytes/size))
	now, pos := start, e.pos
	for i := 1; ; i++ {
		if i%every == 0 {
			now = time.Now()
		}
		last := t.over(i, start, now)
		if last {
			total.Store(int64(i) * int64(size))
		}
		if _, err := e.conn.Write(e.pattern.at(pos, size)); err != nil || last {
			return err
		}
		pos += int64(size)
	}
}

func (e *echoer) receive(size int, t turn, start time.Time, total *atomic.Int64) error {
	for n, i := int64(0), 1; n < total.Load(); i++ {
		got, err := e.conn.Read(e.buf)
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		if err := e.pattern.check(e.pos, e.buf[:got]); err != nil {
			return err
		}
		n, e.pos = n+int64(got), e.pos+int64(got)
		if i%clockEvery != 0 {
			continue
		}
		if now := time.Now(); e.progress.Due(now) {
			if err := e.report(t, start, now, int(n)/size, size); err != nil {
				return err
			}
		}
	}
	return nil
}

// report redraws the progress line and gives the server another stall to answer.
func (e *echoer) report(t turn, start, now time.Time, messages, size int) error {
	took := now.Sub(start)
	rate := float64(messages) / took.Seconds()
	e.progress.Show(now, t.share(messages, took),
		fmt.Sprintf("%s: %s messages/s, %s", e.network, console.Count(rate), console.Rate(rate*float64(size))))
	return e.extend(now)
}

// extend gives the server a stall from now on. A deadline that an interrupt has set is not
// taken back for long: it is seen here, or set again behind this.
func (e *echoer) extend(now time.Time) error {
	if err := e.conn.SetDeadline(now.Add(stall)); err != nil {
		return err
	}
	return e.ctx.Err()
}
