package rdmanet

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestShortLived has servers that say one thing and close, as fast as they can, and
// with them clients: nothing of it is lost, and no Dial fails because the other end
// was done with the connection before Dial had returned.
func TestShortLived(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		l := fl.newListener(t)
		rounds := scale(200)
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				for range rounds {
					s, err := l.AcceptConn()
					if !assert.NoError(t, err) {
						return
					}
					_, err = s.Write([]byte("the time is now"))
					assert.NoError(t, err)
					assert.NoError(t, s.Close())
				}
			})
			all.Go(func() {
				for i := range rounds {
					assert.NoError(t, hear(fl, l), "round %d", i)
				}
			})
		}
		all.Wait()
	})
}

// hear dials and reads what the server has to say.
func hear(fl flavour, l *Listener) error {
	c, err := fl.dialer.dial(context.Background(), "rdma", l.Addr().String())
	if err != nil {
		return err
	}
	defer c.Close()
	said, err := io.ReadAll(c)
	if err == nil && string(said) != "the time is now" {
		err = fmt.Errorf("the server said %q", said)
	}
	return err
}

// TestShortLivedClients has clients that say one thing and close.
func TestShortLivedClients(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		l := fl.newListener(t)
		rounds := scale(200)
		var client sync.WaitGroup
		client.Go(func() {
			for range rounds {
				c, err := fl.dialer.dial(context.Background(), "rdma", l.Addr().String())
				if !assert.NoError(t, err) {
					return
				}
				_, err = c.Write([]byte("good bye"))
				assert.NoError(t, err)
				assert.NoError(t, c.Close())
			}
		})
		for range rounds {
			s, err := l.AcceptConn()
			require.NoError(t, err)
			said, err := io.ReadAll(s)
			require.NoError(t, err)
			require.Equal(t, "good bye", string(said))
			require.NoError(t, s.Close())
		}
		client.Wait()
	})
}

// TestShortLivedShapes has dials with different settings take turns: what an earlier one
// has left for the next is of no use to it, and does no harm.
func TestShortLivedShapes(t *testing.T) {
	l := flavour{}.newListener(t)
	shapes := []Dialer{{}, {ReadBuffer: MinReadBuffer}, {}, {MaxReadBuffer: 64 << 10}, {}, {}}
	for round := range scale(10) * len(shapes) {
		require.NoError(t, l.SetDeadline(time.Now().Add(patience)))
		c, err := shapes[round%len(shapes)].dial(context.Background(), "rdma", l.Addr().String())
		require.NoError(t, err)
		s, err := l.AcceptConn()
		require.NoError(t, err)
		for _, ends := range [][2]*Conn{{c, s}, {s, c}} {
			_, err = ends[0].Write([]byte("hello"))
			require.NoError(t, err, "round %d", round)
			require.Equal(t, "hello", string(readFull(t, ends[1], 5)), "round %d", round)
		}
		requireClosed(t, c)
		_, err = s.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		requireClosed(t, s)
	}
}
