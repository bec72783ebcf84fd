package storm

import (
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A storm over TCP loses nothing, and what is lost, said twice or said wrongly shows.
func TestStorm(t *testing.T) {
	for _, echo := range []bool{false, true} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		s := Serve(l, echo, 0)
		dial := func(uint64) (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }
		told := Dial(7, 20, echo, dial)
		require.Empty(t, told.Failed)
		arrived, err := s.Finish(20, time.Minute)
		require.NoError(t, err)
		require.Empty(t, arrived.Failed)
		slices.Sort(told.Done)
		slices.Sort(arrived.Done)
		require.Equal(t, told.Done, arrived.Done)
		require.Len(t, told.Done, 20)
		require.EqualValues(t, 7, told.Done[0])

		told = Dial(0, 1, echo, dial)
		require.Len(t, told.Failed, 1, "nobody listens any more")
		require.Empty(t, told.Done)
	}
}

func TestWrongMessage(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := Serve(l, true, 0)
	say := func(b []byte) {
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		_, err = c.Write(b)
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
	wrong := Message(3)
	wrong[20] ^= 1
	say(wrong)
	say(Message(4)[:23])
	say(append(Message(5), 0))
	arrived, err := s.Finish(3, time.Minute)
	require.NoError(t, err)
	assert.Empty(t, arrived.Done)
	assert.Len(t, arrived.Failed, 3)
}
