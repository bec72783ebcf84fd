//go:build linux

package hosts

import (
	"fmt"
	"net"
	"net/rpc"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// prompt is how long what needs no network takes at most on an emulated machine:
// an answer over the control network, a command, the start of a process.
const prompt = 30 * time.Second

// serve has receiver answer calls until the caller hangs up.
func serve(conn net.Conn, receiver any) error {
	s := rpc.NewServer()
	if err := s.Register(receiver); err != nil {
		return err
	}
	s.ServeConn(conn)
	return nil
}

// call has a method run at the other end of the control network.
func call[T any](t testing.TB, c *rpc.Client, method string, args any, limit time.Duration) T {
	t.Helper()
	reply, err := tryCall[T](c, method, args, limit)
	require.NoError(t, err, "%s %+v", method, args)
	return reply
}

func tryCall[T any](c *rpc.Client, method string, args any, limit time.Duration) (T, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	reply := new(T)
	select {
	case done := <-c.Go(method, args, reply, make(chan *rpc.Call, 1)).Done:
		return *reply, done.Error
	case <-timer.C:
		return *new(T), fmt.Errorf("%s has not answered within %v", method, limit)
	}
}
