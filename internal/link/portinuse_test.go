package link

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPortOfAStreamInUse has a program close a stream while another call of it uses its rings. A dial from the
// same port waits for that call, and its OPEN is sent as soon as it ends, though the lane has nothing else to do.
func TestPortOfAStreamInUse(t *testing.T) {
	for _, way := range []struct {
		name      string
		checksums bool
		rounds    int // that begin to use them; of those of Read some are through before the dial comes
		use       func(h *Stream, size int) (end func())
	}{
		{"peek", false, 1, peekAt},
		{"peek at a frame", true, 1, peekAt},
		{"read", false, 60, readAll},
		{"read frames", true, 60, readAll},
	} {
		t.Run(way.name, func(t *testing.T) {
			b := newBed(t, Config{FirstRing: MaxFirstRing, Checksum: way.checksums, Idle: time.Minute})
			to := Target{Src: b.freeAddr(), Dst: b.l.Addr()}
			for range way.rounds {
				client, err := b.links.Dial(b.ctx(), to)
				require.NoError(t, err)
				server := b.accept()
				s := client.now()
				e := s.e
				const size = MaxFirstRing
				_, err = server.Write(make([]byte, size))
				require.NoError(t, err)
				require.NoError(t, server.Close())
				awaitQuiet(t, s)
				end := way.use(client, size)
				require.NoError(t, client.Close())
				next := make(chan dialled, 1)
				go func() {
					s, err := b.links.Dial(b.ctx(), to)
					next <- dialled{s, err}
				}()
				for waits := false; !waits; { // and has its place, unless the use has ended
					e.mu.Lock()
					waits = len(e.dialer.waiting) == 1 && e.state.Places() > 0 || !s.in.copying && !s.in.peeked
					e.mu.Unlock()
				}
				end()
				e.mu.Lock()
				due := e.state.Due() && !e.stuck
				e.mu.Unlock()
				require.False(t, due, "nobody sends the OPEN")
				d := <-next
				require.NoError(t, d.err)
				require.NoError(t, b.accept().Close())
				require.NoError(t, d.s.Close())
			}
		})
	}
}

func peekAt(h *Stream, size int) (end func()) {
	_, _ = h.Peek(size, false)
	return h.Unpeek
}

// readAll begins a Read that copies for as long as can be, to memory that was not used before.
func readAll(h *Stream, size int) (end func()) {
	s := h.now()
	read := make(chan struct{})
	p := make([]byte, 16*size)[:size] // as a rule of the system, page by page
	go func() {
		defer close(read)
		_, _ = h.Read(p)
	}()
	for begun := false; !begun; {
		s.e.mu.Lock()
		begun = s.in.copying || s.st.Receiver().Buffered() == 0
		s.e.mu.Unlock()
	}
	return func() { <-read }
}
