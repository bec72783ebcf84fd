package link

import (
	"bytes"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// A backgroundStream is a stream that moves bytes all the time, and checks every one.
type backgroundStream struct {
	client, server *Stream
	moved          atomic.Int64 // messages
	write, read    chan error   // how either direction ended
}

const backgroundLen = 1 << 10 // bytes of one message

func (b *bed) startBackground() *backgroundStream {
	b.t.Helper()
	s := &backgroundStream{write: make(chan error, 1), read: make(chan error, 1)}
	s.client, s.server = b.separatePair()
	const texts = 251
	text := noise(texts+backgroundLen, 1)
	message := func(i int) []byte { return text[i%texts:][:backgroundLen] } // unlike the one before
	go func() {
		for i := 0; ; i++ {
			if _, err := s.client.Write(message(i)); err != nil {
				s.write <- err
				return
			}
		}
	}()
	go func() {
		got := make([]byte, backgroundLen)
		for i := 0; ; i++ {
			if _, err := io.ReadFull(s.server, got); err != nil {
				s.read <- err
				return
			}
			if !bytes.Equal(got, message(i)) {
				s.read <- fmt.Errorf("the bytes of message %d have changed", i)
				return
			}
			s.moved.Add(1)
		}
	}()
	return s
}

// goesOn sees that more bytes move.
func (s *backgroundStream) goesOn(t *testing.T, beside string) {
	t.Helper()
	timeout := time.After(patience)
	for before := s.moved.Load(); s.moved.Load() == before; {
		select {
		case err := <-s.read:
			t.Fatalf("a stream beside %s does not arrive any more: %v", beside, err)
		case err := <-s.write:
			t.Fatalf("a stream beside %s cannot be written any more: %v", beside, err)
		case <-timeout:
			t.Fatalf("a stream beside %s stands still", beside)
		case <-time.After(100 * time.Microsecond):
		}
	}
}

// TestHostileBackground has a stream move bytes beside peers that lie, and beside an honest one: it
// goes on all the time, and none of its bytes changes.
func TestHostileBackground(t *testing.T) {
	const parts = 5 // TestHostileLane and TestHostileStream have all the lies for each peer
	peers := 0
	eachPeer(t, func(t *testing.T, cfg Config, role lane.Role) {
		part := peers % parts
		peers++
		b := newBed(t, cfg)
		beside := b.startBackground()
		beside.goesOn(t, "nobody")
		for i, l := range append(laneLies(), streamLies()...) {
			if i%parts != part || l.who&by(role) == 0 {
				continue
			}
			m := b.wirePair(role, wireConfig{})
			l.tell(m)
			beside.goesOn(t, l.name)
			m.p.close()
			within(t, "the end of the lane of "+l.name, func() {
				_ = m.ours.Close()
				<-m.ours.e.done
			})
		}
		m := b.wirePair(role, wireConfig{})
		within(t, "an honest peer's conversation", m.conversation)
		beside.goesOn(t, "an honest peer")
	})
}
