package rdmanet

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWritesComeBeforeReads: a program whose two ends are in one process may leave it to the connection to keep
// them in order, as a test does that sets what its server looks at before it sends. The race detector knows that
// of TCP's sockets, and reports nothing here either, however bytes are sent and received.
func TestWritesComeBeforeReads(t *testing.T) {
	sends := map[string]func(c *Conn) error{
		"Write": func(c *Conn) error { _, err := c.Write([]byte{1}); return err },
		"ReadFrom": func(c *Conn) error {
			_, err := c.ReadFrom(struct{ io.Reader }{bytes.NewReader([]byte{1})})
			return err
		},
		"Commit": func(c *Conn) error {
			if _, err := c.Reserve(1); err != nil {
				return err
			}
			return c.Commit(1)
		},
	}
	receives := map[string]func(c *Conn) error{
		"Read": func(c *Conn) error { _, err := c.Read(make([]byte, 1)); return err },
		"WriteTo": func(c *Conn) error {
			if _, err := c.WriteTo(brokenWriter{}); err != nil {
				_, err = c.Discard(1)
				return err
			}
			return io.ErrNoProgress
		},
		"Discard": func(c *Conn) error {
			if _, err := c.Peek(1); err != nil {
				return err
			}
			_, err := c.Discard(1)
			return err
		},
	}
	for sending, send := range sends {
		for receiving, receive := range receives {
			t.Run(sending+" "+receiving, func(t *testing.T) {
				client, server := pair(t)
				turns := 0 // of whoever has read last
				answered := make(chan error, 1)
				go func() {
					for {
						if err := receive(server); err != nil {
							answered <- nil
							return
						}
						turns++
						if err := send(server); err != nil {
							answered <- err
							return
						}
					}
				}()
				const rounds = 100
				for range rounds {
					turns++
					require.NoError(t, send(client))
					require.NoError(t, receive(client))
				}
				require.Equal(t, 2*rounds, turns)
				require.NoError(t, client.Close())
				require.NoError(t, <-answered)
			})
		}
	}
}
