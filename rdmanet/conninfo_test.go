package rdmanet

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestConns(t *testing.T) {
	waitForNone(t)
	// Rings that do not grow meanwhile.
	client, server := flavour{dialer: Dialer{ReadBuffer: MinReadBuffer}, listen: ListenConfig{ReadBuffer: MinReadBuffer}}.pair(t)
	write(t, client, 1000)
	_, err := client.Write([]byte{1})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return server.arrived() == 1001 }, patience, time.Millisecond)

	infos := Conns()
	require.Len(t, infos, 2)
	at := map[bool]ConnInfo{}
	for _, i := range infos {
		at[i.Accepted] = i
		require.Equal(t, "rdma", i.Network)
		require.Equal(t, client.Device(), i.Device)
		require.Equal(t, StateEstablished, i.State)
		require.WithinDuration(t, time.Now(), i.Since, patience)
		require.Positive(t, i.SendQueueSize)
		require.Equal(t, client.Stats().ReadBuffer, i.ReadBuffer)
		require.GreaterOrEqual(t, i.Registered, i.ReadBuffer)
	}
	c, s := at[false], at[true]
	require.Equal(t, client.LocalAddr().String(), c.Local.String())
	require.Equal(t, client.RemoteAddr().String(), c.Remote.String())
	require.Equal(t, c.Local, s.Remote)
	require.Equal(t, c.Remote, s.Local)
	require.Zero(t, c.Unread)
	require.Equal(t, 1001, s.Unread)
	require.Equal(t, c.WriteBuffer-1001, c.Writable)
	require.EqualValues(t, 1001, c.BytesWritten)
	require.Positive(t, c.Credits)
	require.Positive(t, s.Credits)
	require.LessOrEqual(t, c.SendQueue, c.SendQueueSize)
	require.Equal(t, c.DoorbellsSent, s.DoorbellsReceived)
	require.Greater(t, c.DoorbellsSent, c.MessagesSent, "it was opened, too")
}

// TestConnInfoIsOfOneMoment: of what has arrived each byte is either read or unread, while a program reads.
func TestConnInfoIsOfOneMoment(t *testing.T) {
	const n, rounds = 4000, 20
	client, server := flavour{dialer: Dialer{ReadBuffer: MinReadBuffer}, listen: ListenConfig{ReadBuffer: MinReadBuffer}}.pair(t)
	for round := 1; round <= rounds; round++ {
		write(t, client, n)
		require.Eventually(t, func() bool { return server.arrived() == n }, patience, time.Millisecond)
		read := make(chan error, 1)
		go func() {
			for range n {
				if _, err := server.Read(make([]byte, 1)); err != nil {
					read <- err
					return
				}
			}
			read <- nil
		}()
		for i := server.info(); ; i = server.info() {
			require.EqualValues(t, round*n, i.BytesRead+uint64(i.Unread))
			if i.Unread == 0 {
				break
			}
		}
		require.NoError(t, <-read)
	}
}

// waitForNone waits for connections of tests before that are still being torn down.
func waitForNone(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return len(Conns()) == 0 }, patience, time.Millisecond)
}

// arrived is how much there is to read, without waiting.
func (c *Conn) arrived() int {
	return c.info().Unread
}

func TestConnStates(t *testing.T) {
	client, server := pair(t)
	require.NoError(t, client.CloseWrite())
	readEOF(t, server)
	require.Equal(t, StateFinWait, client.info().State)
	require.Equal(t, StateCloseWait, server.info().State)
	require.NoError(t, server.CloseWrite())
	readEOF(t, client)
	require.Equal(t, StateClosing, client.info().State)
	require.Equal(t, StateClosing, server.info().State)

	client, server = pair(t)
	require.NoError(t, server.Close())
	readEOF(t, client)
	require.Equal(t, StateCloseWait, client.info().State)

	client, server = pair(t)
	require.NoError(t, server.SetLinger(0))
	require.NoError(t, server.Close())
	_, err := client.Read(make([]byte, 1))
	require.Error(t, err)
	require.Equal(t, StateFailed, client.info().State)
	require.NoError(t, client.Close())
	require.Equal(t, StateClosing, client.info().State)
}

func TestConnStatePrints(t *testing.T) {
	b, err := json.Marshal(ConnInfo{State: StateCloseWait})
	require.NoError(t, err)
	require.Contains(t, string(b), `"State":"CLOSE-WAIT"`)
	require.Equal(t, "?", ConnState(200).String())
}
