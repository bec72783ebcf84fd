package programs

import (
	"errors"
	"io"
	"net"
	"net/rpc"
	"net/rpc/jsonrpc"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Arithmetic is what net/rpc's documentation serves.
type Arithmetic struct{}

type Operands struct{ A, B int }

func (Arithmetic) Divide(args Operands, quotient *int) error {
	if args.B == 0 {
		return errors.New("divide by zero")
	}
	*quotient = args.A / args.B
	return nil
}

// Reverse returns large answers to large questions.
func (Arithmetic) Reverse(b []byte, reversed *[]byte) error {
	*reversed = slices.Clone(b)
	slices.Reverse(*reversed)
	return nil
}

func TestNetRPC(t *testing.T) {
	for _, codec := range []struct {
		name   string
		serve  func(*rpc.Server, io.ReadWriteCloser)
		client func(io.ReadWriteCloser) *rpc.Client
	}{
		{"gob", func(s *rpc.Server, c io.ReadWriteCloser) { s.ServeConn(c) }, rpc.NewClient},
		{"JSON", func(s *rpc.Server, c io.ReadWriteCloser) { s.ServeCodec(jsonrpc.NewServerCodec(c)) }, jsonrpc.NewClient},
	} {
		t.Run(codec.name, func(t *testing.T) {
			w := newWire(t)
			s := rpc.NewServer()
			require.NoError(t, s.Register(Arithmetic{}))
			go func() {
				for {
					conn, err := w.Accept()
					if err != nil {
						return
					}
					go codec.serve(s, conn)
				}
			}()
			conn, err := w.Dial(t.Context())
			require.NoError(t, err)
			c := codec.client(conn)

			var quotient int
			require.NoError(t, c.Call("Arithmetic.Divide", Operands{42, 6}, &quotient))
			assert.Equal(t, 7, quotient)
			assert.EqualError(t, c.Call("Arithmetic.Divide", Operands{1, 0}, &quotient), "divide by zero")
			assert.ErrorContains(t, c.Call("Arithmetic.Nothing", Operands{}, &quotient), "can't find method")
			assert.NoError(t, together(100, func(i int) error {
				data := random(i*1000, byte(i))
				var got []byte
				if err := c.Call("Arithmetic.Reverse", data, &got); err != nil {
					return err
				}
				slices.Reverse(got)
				if !slices.Equal(data, got) {
					return errors.New("not what was sent")
				}
				return nil
			}))
			require.NoError(t, c.Close())
			assert.ErrorIs(t, c.Call("Arithmetic.Divide", Operands{1, 1}, &quotient), rpc.ErrShutdown)
		})
	}
}

// TestNetRPCServerThatGoes has calls under way when the server's end is closed.
func TestNetRPCServerThatGoes(t *testing.T) {
	w := newWire(t)
	conn, server, err := w.pair()
	require.NoError(t, err)
	c := rpc.NewClient(conn)
	call := c.Go("Arithmetic.Divide", Operands{1, 1}, new(int), nil)
	_, err = io.ReadFull(server, make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, server.Close())
	<-call.Done
	var broken *net.OpError // the server had not read all
	assert.True(t, errors.As(call.Error, &broken) || errors.Is(call.Error, io.ErrUnexpectedEOF), call.Error)
	require.NoError(t, c.Close())
}
