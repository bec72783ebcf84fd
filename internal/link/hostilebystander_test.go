package link

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// A bystander is a stream that moves bytes all the time, and looks at every one.
type bystander struct {
	client, server *Stream
	moved          atomic.Int64
	done           chan error
}

const bystanderLen = 1 << 10 // bytes of one message

func (b *bed) startBystander() *bystander {
	b.t.Helper()
	s := &bystander{done: make(chan error, 2)}
	text := noise(251+bystanderLen, 1) // each message is a part of it, and none as the one before
	s.client, s.server = b.stranger()
	stamp := func(i int) []byte { return text[i%251:][:bystanderLen] }
	go func() {
		for i := 0; ; i++ {
			if _, err := s.client.Write(stamp(i)); err != nil {
				s.done <- nil // closed, or the reader tells
				return
			}
		}
	}()
	go func() {
		got := make([]byte, bystanderLen)
		for i := 0; ; i++ {
			switch _, err := io.ReadFull(s.server, got); {
			case err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF):
				s.done <- nil
				return
			case err != nil:
				s.done <- err
				return
			case !bytes.Equal(got, stamp(i)):
				s.done <- fmt.Errorf("the bytes of message %d have changed", i)
				_ = s.server.Reset()
				return
			}
			s.moved.Add(1)
		}
	}()
	return s
}

// stop ends it in good order.
func (s *bystander) stop(t *testing.T) {
	t.Helper()
	within(t, "the end of a bystander", func() {
		require.NoError(t, s.client.Close())
		require.NoError(t, errors.Join(<-s.done, <-s.done))
		require.NoError(t, s.server.Close())
	})
}

// TestHostileBystanders has a stream move bytes beside peers that lie, and beside honest ones: it
// goes on all the time, and none of its bytes changes.
func TestHostileBystanders(t *testing.T) {
	eachPeer(t, func(t *testing.T, cfg Config, role lane.Role) {
		b := newBed(t, cfg)
		moving := b.startBystander()
		goesOn := func(beside string) {
			t.Helper()
			before := moving.moved.Load()
			require.Eventually(t, func() bool { return moving.moved.Load() > before }, patience, time.Millisecond, "the bystander stands still beside %s", beside)
		}
		goesOn("nobody")
		for i, l := range append(laneLies(), streamLies()...) {
			if i%5 != len(t.Name())%5 { // a fifth of them for each flavour: TestHostileLane tells all
				continue
			}
			if l.who&by(role) == 0 || l.name == "DataBeforeAccepted" { // which is another dial
				continue
			}
			m := b.meet(role, wireConfig{})
			l.tell(m)
			goesOn(l.name)
			m.p.close()
			within(t, "the end of the lane of "+l.name, func() {
				_ = m.victim.Close()
				<-m.victim.e.done
			})
		}
		m := b.meet(role, wireConfig{})
		m.conversation()
		goesOn("an honest peer")
		moving.stop(t)
	})
}
