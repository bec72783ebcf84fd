package rdmanet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCopyIsZeroCopy has io.Copy find ReadFrom and WriteTo, which copy nothing.
func TestCopyIsZeroCopy(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		client, server := fl.pair(t)
		want := noise(3<<20, 7)
		done := make(chan error, 1)
		go func() {
			// Neither the source nor the sink may take the copy over.
			n, err := io.Copy(client, struct{ io.Reader }{bytes.NewReader(want)})
			assert.EqualValues(t, len(want), n)
			done <- errors.Join(err, client.CloseWrite())
		}()
		var got bytes.Buffer
		n, err := io.Copy(struct{ io.Writer }{&got}, server)
		require.NoError(t, err)
		require.EqualValues(t, len(want), n)
		require.NoError(t, <-done)
		require.True(t, bytes.Equal(want, got.Bytes()))
		for _, c := range []*Conn{client, server} {
			require.EqualValues(t, len(want), c.Stats().BytesPlaced)
			require.Zero(t, c.Stats().BytesCopied)
		}
	})
}

// TestWriteCopies tells the two kinds of devices apart by what Write costs.
func TestWriteCopies(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		client, server := fl.pair(t)
		data := noise(1000, 1)
		_, err := client.Write(data)
		require.NoError(t, err)
		require.Equal(t, data, readFull(t, server, len(data)))
		c, s := client.Stats(), server.Stats()
		if !client.synchronous(t) {
			require.EqualValues(t, len(data), c.BytesCopied, "to memory the device reads later")
			require.Zero(t, c.BytesPlaced)
		} else {
			require.EqualValues(t, len(data), c.BytesPlaced, "by the device at the post")
			require.Zero(t, c.BytesCopied)
		}
		require.EqualValues(t, len(data), s.BytesCopied, "Read copies out of the ring")
		require.Zero(t, s.BytesPlaced)
		require.EqualValues(t, len(data), s.BytesRead)
		require.EqualValues(t, len(data), c.BytesWritten)
	})
}

// TestCopyBetweenConnections joins two connections as a proxy does.
func TestCopyBetweenConnections(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		client, left := fl.pair(t)
		right, server := fl.pair(t)
		done := make(chan error, 2)
		join := func(dst, src *Conn) {
			_, err := io.Copy(dst, src)
			done <- errors.Join(err, dst.CloseWrite())
		}
		go join(right, left)
		go join(left, right)
		go func() { _, _ = io.Copy(server, server); _ = server.CloseWrite() }()
		want := noise(1<<20, 9)
		go func() { _, _ = client.Write(want); _ = client.CloseWrite() }()
		got, err := io.ReadAll(client)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got))
		require.NoError(t, <-done)
		require.NoError(t, <-done)
	})
}

// oddReader and oddWriter answer with what they hold, as often as they are asked.
type oddReader struct {
	n   int
	err error
}

func (r *oddReader) Read([]byte) (int, error) { return r.n, r.err }

type oddWriter struct {
	n   int
	err error
}

func (w *oddWriter) Write([]byte) (int, error) { return w.n, w.err }

func TestReadFromOddSources(t *testing.T) {
	client, server := pair(t)
	for _, n := range []int{-1, MaxReserve + 1} {
		_, err := client.ReadFrom(&oddReader{n: n})
		requireOpError(t, err, "readfrom", []string{"impossible count"})
	}
	// What came with the error is sent.
	n, err := client.ReadFrom(&oddReader{n: 3, err: errBroken})
	require.EqualValues(t, 3, n)
	requireOpError(t, err, "readfrom", []string{"broken on purpose"}, errBroken)
	readFull(t, server, 3)
	n, err = client.ReadFrom(&oddReader{n: 4, err: io.EOF})
	require.EqualValues(t, 4, n)
	require.NoError(t, err)
	readFull(t, server, 4)
	n, err = client.ReadFrom(strings.NewReader(""))
	require.Zero(t, n)
	require.NoError(t, err)
	arrived(t, client)
}

func TestWriteToOddSinks(t *testing.T) {
	client, server := pair(t)
	_, err := client.Write([]byte("0123456789"))
	require.NoError(t, err)
	for _, n := range []int{-1, 11} {
		_, err := server.WriteTo(&oddWriter{n: n})
		requireOpError(t, err, "writeto", []string{"impossible count"})
	}
	n, err := server.WriteTo(&oddWriter{n: 2})
	require.EqualValues(t, 2, n)
	requireOpError(t, err, "writeto", []string{"short write"}, io.ErrShortWrite)
	n, err = server.WriteTo(&oddWriter{n: 3, err: errBroken})
	require.EqualValues(t, 3, n)
	requireOpError(t, err, "writeto", []string{"broken on purpose"}, errBroken)
	n, err = server.WriteTo(&oddWriter{n: 1, err: io.EOF})
	require.EqualValues(t, 1, n)
	require.Equal(t, io.EOF, err, "as over TCP")
	require.Equal(t, "6789", string(readFull(t, server, 4)), "what the sinks did not take is still there")
}

// TestReadFromSlowSource leaves the connection to others while the source waits.
func TestReadFromSlowSource(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		client, server := fl.pair(t)
		pr, pw := io.Pipe()
		done := make(chan error, 1)
		go func() { _, err := client.ReadFrom(pr); done <- err }()
		_, err := pw.Write([]byte("a"))
		require.NoError(t, err)
		require.Equal(t, "a", string(readFull(t, server, 1)))
		_, err = client.Write([]byte("b"))
		require.NoError(t, err)
		require.Equal(t, "b", string(readFull(t, server, 1)))
		_, err = pw.Write([]byte("c"))
		require.NoError(t, err)
		require.Equal(t, "c", string(readFull(t, server, 1)))
		require.NoError(t, pw.Close())
		require.NoError(t, <-done)
	})
}

// TestReadFromFileGoesOn cuts the copy of a file by a deadline and goes on from where the file is left, which over
// TCP is behind the last byte that was sent.
func TestReadFromFileGoesOn(t *testing.T) {
	mostlyWaits(t)
	const limit = 16 << 20
	want := noise(limit+1000, 9)
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, want, 0o600))
	for _, tr := range []transport{overTCP{}, overRDMA{flavours()[0]}} {
		for _, limited := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s limited=%t", tr.name(), limited), func(t *testing.T) {
				w := newWorld(t, tr)
				defer w.close()
				_, err := scriptPair(w, nil)
				require.NoError(t, err)
				client, server := w.tcpLike("c"), w.tcpLike("s")
				f, err := os.Open(name)
				require.NoError(t, err)
				defer f.Close()
				src, end := io.Reader(f), len(want)
				if limited {
					src, end = io.LimitReader(f, limit), limit
				}

				_, err = client.Write([]byte{1}) // so that no piece ends with the room for it
				require.NoError(t, err)
				require.NoError(t, client.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
				n, err := io.Copy(client, src)
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				at, err := f.Seek(0, io.SeekCurrent)
				require.NoError(t, err)
				require.Equal(t, n, at)

				require.NoError(t, client.SetWriteDeadline(time.Time{}))
				done := make(chan error, 1)
				go func() {
					m, err := io.Copy(client, src)
					assert.EqualValues(t, end, n+m)
					done <- errors.Join(err, client.CloseWrite())
				}()
				got, err := io.ReadAll(server)
				require.NoError(t, err)
				require.NoError(t, <-done)
				require.True(t, bytes.Equal(want[:end], got[1:]))
			})
		}
	}
}
