package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/cli/console"
	"github.com/rdmanet/go-rdmanet/internal/latency"
)

const (
	// budget is how long one kind of measurement lasts when -count is not given.
	budget = 500 * time.Millisecond
	// stall is how long the server may keep a byte before the client gives up.
	stall = 10 * time.Second
	// fits is the size of message that the path holds as a whole. The server returns
	// bytes as they come, so whoever writes more than that without reading what
	// comes back waits for a server that waits for him.
	fits = 16 << 10
	// clockEvery is how many messages of a stream go by between looks at the clock.
	clockEvery = 64
)

var defaultSizes = []int{64, 4 << 10, 64 << 10, 1 << 20}

// echoer is the client's end: where the stream stands, and what it must look like.
type echoer struct {
	conn     net.Conn
	progress *console.Progress
	pattern  pattern
	pos      int64
	buf      []byte
	limit    int
	latency  latency.Histogram
}

// measure prints a row of the table for each message size.
func measure(ctx context.Context, conn net.Conn, opt options) error {
	sizes := defaultSizes
	if opt.size > 0 {
		sizes = []int{opt.size}
	}
	largest := sizes[len(sizes)-1]
	e := &echoer{
		conn:     conn,
		progress: console.NewProgress(os.Stderr),
		pattern:  newPattern(largest),
		buf:      make([]byte, largest),
		limit:    opt.count,
	}
	if e.limit == 0 {
		e.limit = math.MaxInt
	}
	defer e.progress.Clear()
	var table console.Table
	table.Header("size", "round trips", "p50", "p90", "p99", "max", "streamed", "throughput", "messages/s")
	for _, size := range sizes {
		if err := e.roundTrips(size); err != nil {
			return fmt.Errorf("round trips of %s: %w", console.Size(int64(size)), err)
		}
		s, err := e.stream(size)
		if err != nil {
			return fmt.Errorf("stream of %s: %w", console.Size(int64(size)), err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		h := &e.latency
		table.Row(console.Size(int64(size)), fmt.Sprint(h.Count()),
			console.Latency(h.Quantile(0.5)), console.Latency(h.Quantile(0.9)), console.Latency(h.Quantile(0.99)), console.Latency(h.Max()),
			console.Size(s.bytes), console.Rate(float64(s.bytes)/s.took.Seconds()), console.Count(float64(s.messages)/s.took.Seconds()))
	}
	e.progress.Clear()
	table.Print(opt.out)
	fmt.Fprintf(opt.out, "\n%s echoed, every byte compared\n", console.Size(e.pos))
	return nil
}

// roundTrips sends a message, waits until all of it came back, and so on.
func (e *echoer) roundTrips(size int) (err error) {
	e.latency.Reset()
	start := time.Now()
	last := start
	e.progress.Start(console.Size(int64(size))+" round trips", start)
	if err := e.conn.SetDeadline(start.Add(stall)); err != nil {
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
	for i := 0; i < e.limit; i++ {
		if _, err := send(e.pattern.at(e.pos, size)); err != nil {
			return err
		}
		if _, err := io.ReadFull(e.conn, e.buf[:size]); err != nil {
			return err
		}
		now := time.Now()
		e.latency.Record(now.Sub(last))
		if err := e.pattern.check(e.pos, e.buf[:size]); err != nil {
			return err
		}
		e.pos += int64(size)
		if e.progress.Due(now) {
			if err := e.report(start, now, i+1, size); err != nil {
				return err
			}
		}
		if e.limit == math.MaxInt && now.Sub(start) >= budget {
			break
		}
		last = time.Now()
	}
	return nil
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

// streamed is what one stream came to.
type streamed struct {
	bytes    int64
	messages int
	took     time.Duration
}

// stream sends message after message while it takes back what returns.
func (e *echoer) stream(size int) (streamed, error) {
	start := time.Now()
	e.progress.Start(console.Size(int64(size))+" stream", start)
	if err := e.conn.SetDeadline(start.Add(stall)); err != nil {
		return streamed{}, err
	}
	// total becomes known before the last message leaves, so that the reader is
	// never left waiting for bytes that nobody sends.
	var total atomic.Int64
	total.Store(math.MaxInt64)
	sending := make(chan error, 1)
	go func() { sending <- e.send(size, start, &total) }()
	err := e.receive(size, start, &total)
	if err != nil {
		// The sender may be blocked behind the failure.
		_ = e.conn.SetDeadline(time.Unix(1, 0))
	}
	if sendErr := <-sending; err == nil {
		err = sendErr
	}
	n := total.Load()
	return streamed{n, int(n) / size, time.Since(start)}, err
}

func (e *echoer) send(size int, start time.Time, total *atomic.Int64) error {
	pos := e.pos
	for i := 1; ; i++ {
		last := i == e.limit
		if e.limit == math.MaxInt && i%clockEvery == 0 {
			last = time.Since(start) >= budget
		}
		if last {
			total.Store(int64(i) * int64(size))
		}
		if _, err := e.conn.Write(e.pattern.at(pos, size)); err != nil || last {
			return err
		}
		pos += int64(size)
	}
}

func (e *echoer) receive(size int, start time.Time, total *atomic.Int64) error {
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
			if err := e.report(start, now, int(n)/size, size); err != nil {
				return err
			}
		}
	}
	return nil
}

// report redraws the progress line and gives the server another stall to answer.
func (e *echoer) report(start, now time.Time, messages, size int) error {
	took := now.Sub(start)
	share := float64(messages) / float64(e.limit)
	if e.limit == math.MaxInt {
		share = float64(took) / float64(budget)
	}
	rate := float64(messages) / took.Seconds()
	e.progress.Show(now, share, fmt.Sprintf("%s messages/s, %s", console.Count(rate), console.Rate(rate*float64(size))))
	return e.conn.SetDeadline(now.Add(stall))
}
