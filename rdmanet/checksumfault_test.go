package rdmanet

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring"
)

// requireChecksumError sees that err says what a wrong checksum says, at either end.
func requireChecksumError(t *testing.T, err error) {
	t.Helper()
	var op *net.OpError
	require.ErrorAs(t, err, &op)
	require.ErrorIs(t, err, ErrChecksum)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.False(t, op.Timeout())
}

// flips are places in the ring behind two frames, of 100 and of 1000 bytes.
var flips = []struct {
	name string
	at   int
}{
	{"length", ring.FrameLen(100)},
	{"length, beyond the ring", ring.FrameLen(100) + 3},
	{"sum", ring.FrameLen(100) + 4},
	{"first byte", ring.FrameLen(100) + ring.FrameHeaderLen},
	{"in the middle", ring.FrameLen(100) + 500},
	{"last byte", ring.FrameLen(100) + ring.FrameHeaderLen + 999},
}

// TestChecksumFlippedBit changes a bit in the memory of a receive ring: the bytes before
// that message are read and none of its own, whatever way they are read, and both ends
// say why.
func TestChecksumFlippedBit(t *testing.T) {
	eachChecked(t, func(t *testing.T, fl flavour) {
		for _, flip := range flips {
			for i, read := range readings {
				for _, size := range []int{64, 4096} {
					logged := newRecorder(slog.LevelError)
					fl.listen.Logger = slog.New(logged)
					client, server := fl.pair(t)
					require.NoError(t, writings[i](client, noise(100, 1)))
					require.NoError(t, writings[i](client, noise(1000, 2)))
					all := ring.FrameLen(100) + ring.FrameLen(1000)
					require.Eventually(t, func() bool { return server.arrived() == all }, patience, time.Millisecond)
					server.ep.data[flip.at] ^= 0x10

					var got []byte
					var err error
					for err == nil {
						var b []byte
						b, err = read(server, size)
						got = append(got, b...)
					}
					requireChecksumError(t, err)
					require.ErrorContains(t, err, "after 100 bytes", flip.name)
					require.Equal(t, noise(100, 1), got)
					for _, read := range readings { // and so it stays
						b, err := read(server, size)
						requireChecksumError(t, err)
						require.Empty(t, b)
					}
					_, err = server.Write([]byte{1})
					requireChecksumError(t, err)
					require.EqualValues(t, 1, server.Stats().ChecksumErrors)
					require.EqualValues(t, 100, server.Stats().BytesRead)
					require.Equal(t, StateFailed, server.term.state())

					_, err = client.Read(make([]byte, 1))
					requireChecksumError(t, err)
					_, err = client.Write([]byte{1})
					requireChecksumError(t, err)
					require.Zero(t, client.Stats().ChecksumErrors, "it is the finder who counts")

					record := <-logged.records
					require.Equal(t, "rdmanet: bytes did not arrive as they were sent", record.Message)
					require.Contains(t, attrs(record)["err"], "after 100 bytes")
					require.Empty(t, logged.records)
				}
			}
		}
	})
}

// TestChecksumPadding changes what is not part of the stream.
func TestChecksumPadding(t *testing.T) {
	client, server := checked().pair(t)
	write(t, client, 10)
	require.Eventually(t, func() bool { return server.arrived() == 32 }, patience, time.Millisecond)
	server.ep.data[20] ^= 1
	readFull(t, server, 10)
}

// TestChecksumOff shows what the option is for.
func TestChecksumOff(t *testing.T) {
	client, server := pair(t)
	_, err := client.Write([]byte("hello"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return server.arrived() == 5 }, patience, time.Millisecond)
	server.ep.data[0] ^= 1
	require.Equal(t, "iello", string(readFull(t, server, 5)), "nobody noticed")
}

// TestChecksumCloseAfter has the end that found it close at once: its peer still hears why.
func TestChecksumCloseAfter(t *testing.T) {
	eachChecked(t, func(t *testing.T, fl flavour) {
		for range 20 {
			client, server := fl.pair(t)
			write(t, client, 10)
			require.Eventually(t, func() bool { return server.arrived() > 0 }, patience, time.Millisecond)
			server.ep.data[12] ^= 1
			waiting := make(chan error, 1)
			go func() {
				_, err := client.Read(make([]byte, 1))
				waiting <- err
			}()
			_, err := server.Read(make([]byte, 1))
			requireChecksumError(t, err)
			requireClosed(t, server)
			requireChecksumError(t, <-waiting)
			requireClosed(t, client)
		}
	})
}

// TestChecksumWithoutASlot has no slot left to say it in: the connection ends all the same.
func TestChecksumWithoutASlot(t *testing.T) {
	client, server := checked().pair(t)
	write(t, client, 10)
	require.Eventually(t, func() bool { return server.arrived() > 0 }, patience, time.Millisecond)
	server.ep.data[12] ^= 1
	server.send.mu.Lock()
	for server.send.ring.ControlSlots() > 0 {
		server.send.ring.SentControl()
	}
	server.send.mu.Unlock()
	_, err := server.Read(make([]byte, 1))
	requireChecksumError(t, err)
	_, err = client.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

// TestChecksumAfterTheEnd has the peer gone, in good order or not, before the bytes it left
// are looked at.
func TestChecksumAfterTheEnd(t *testing.T) {
	for name, end := range map[string]func(*Conn) error{
		"CloseWrite": (*Conn).CloseWrite,
		"Close":      (*Conn).Close,
		"reset":      func(c *Conn) error { return errors.Join(c.SetLinger(0), c.Close()) },
		"vanished":   func(c *Conn) error { c.ep.abort(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			client, server := checked().pair(t)
			write(t, client, 10)
			require.Eventually(t, func() bool { return server.arrived() > 0 }, patience, time.Millisecond)
			require.NoError(t, end(client))
			require.Eventually(t, func() bool {
				server.arrived()
				return server.term.received() || server.term.sendDone()
			}, patience, time.Millisecond)
			server.ep.data[12] ^= 1
			for range 3 {
				n, err := server.Read(make([]byte, 100))
				requireChecksumError(t, err)
				require.Zero(t, n)
			}
			require.EqualValues(t, 1, server.Stats().ChecksumErrors)
		})
	}
}

// TestChecksumCounted has the process count it, and go on counting when the connection is
// gone.
func TestChecksumCounted(t *testing.T) {
	waitForNone(t)
	client, server := checked().pair(t)
	before := ReadStats()
	write(t, client, 10)
	require.Eventually(t, func() bool { return server.arrived() > 0 }, patience, time.Millisecond)
	server.ep.data[12] ^= 1
	_, err := io.ReadAll(server)
	requireChecksumError(t, err)
	for _, c := range []*Conn{server, client} {
		d := counted(t, server.Device(), before)
		require.EqualValues(t, 1, d.ChecksumErrors-deviceStats(before, server.Device()).ChecksumErrors)
		require.EqualValues(t, 1, d.Errors["ECONNRESET"])
		if c == server {
			_, err = client.Read(make([]byte, 1))
			requireChecksumError(t, err)
			break
		}
	}
	requireClosed(t, server)
	d := counted(t, server.Device(), before)
	require.EqualValues(t, 1, d.ChecksumErrors-deviceStats(before, server.Device()).ChecksumErrors)
	require.EqualValues(t, 2, d.Errors["ECONNRESET"], "at both ends")
}
