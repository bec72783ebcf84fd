package rdmanet

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// A backgroundConn is a connection that moves bytes all the time, and checks every one.
type backgroundConn struct {
	client, server *Conn
	moved          atomic.Int64
	done           chan error
}

func startBackground(t *testing.T) *backgroundConn {
	b := &backgroundConn{done: make(chan error, 2)}
	b.client, b.server = pair(t)
	go func() { b.done <- b.write() }()
	go func() { b.done <- b.read() }()
	return b
}

// stamp fills b with what belongs at a place of the stream, a multiple of its length.
func stamp(b []byte, at int64) {
	for i := range b {
		b[i] = byte(at/int64(len(b))*7 + int64(i))
	}
}

const stampLen = 1024 // bytes of one message

func (b *backgroundConn) write() error {
	msg := make([]byte, stampLen)
	for at := int64(0); ; at += stampLen {
		stamp(msg, at)
		if _, err := b.client.Write(msg); err != nil {
			return nil // closed
		}
	}
}

func (b *backgroundConn) read() error {
	got, want := make([]byte, stampLen), make([]byte, stampLen)
	for at := int64(0); ; at += stampLen {
		for n := 0; n < len(got); {
			m, err := b.server.Read(got[n:])
			if err != nil {
				return nil
			}
			n += m
		}
		if stamp(want, at); string(got) != string(want) {
			return fmt.Errorf("the bytes at %d of the stream have changed", at)
		}
		b.moved.Add(stampLen)
	}
}

func (b *backgroundConn) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, b.client.Close())
	require.NoError(t, b.server.Close())
	require.NoError(t, errors.Join(<-b.done, <-b.done))
}
