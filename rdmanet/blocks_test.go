package rdmanet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// stingyPD registers no more than left MRs.
type stingyPD struct {
	verbs.PD
	left int
}

func (p *stingyPD) RegMR(buf []byte, access verbs.AccessFlags) (verbs.MR, error) {
	if p.left == 0 {
		return nil, verbs.ErrNoMemory
	}
	p.left--
	return p.PD.RegMR(buf, access)
}

// TestBlocksWithoutMemory has a device that registers fewer send blocks than would
// be used, or none: what there is does, and a refusal costs nothing.
func TestBlocksWithoutMemory(t *testing.T) {
	async := flavour{dialer: Dialer{asynchronous: true}, listen: ListenConfig{asynchronous: true}}
	t.Run("one", func(t *testing.T) {
		client, server := async.pair(t)
		client.ep.pd = &stingyPD{PD: client.ep.pd, left: 1}
		require.NoError(t, errors.Join(client.SetDeadline(time.Now().Add(patience)), server.SetDeadline(time.Now().Add(patience))))
		data := bytes.Repeat([]byte("0123456789"), 100_000)
		sent := make(chan error, 1)
		go func() {
			_, err := client.ReadFrom(bytes.NewReader(data))
			_, werr := client.Write(data)
			_, rerr := client.Reserve(10) // Write keeps the block that it has begun
			if !errors.Is(rerr, ErrNoMemory) {
				err = errors.Join(err, errors.New("Reserve got memory from nowhere"))
			}
			sent <- errors.Join(err, werr, client.CloseWrite())
		}()
		got, err := io.ReadAll(server)
		require.NoError(t, err)
		require.NoError(t, <-sent)
		require.True(t, bytes.Equal(append(data[:len(data):len(data)], data...), got))
	})
	t.Run("one at first", func(t *testing.T) {
		client, server := async.pair(t)
		registers := client.ep.pd
		client.ep.pd = &stingyPD{PD: registers, left: 1}
		go func() { _, _ = io.Copy(io.Discard, server) }()
		fill := func() bool { // more than one block at a time
			_, err := client.Write(make([]byte, 4*maxSendBlocks*sendBlockSize))
			return err == nil
		}
		within(t, lasting, "a want of blocks", func() {
			for client.send.blocks.denied == 0 && fill() {
			}
		})
		client.ep.pd = registers
		client.send.mu.Lock()
		client.send.blocks.again = 0 // the pause is over
		client.send.mu.Unlock()
		within(t, lasting, "one more block", func() {
			for client.send.blocks.denied != 0 && fill() {
			}
		})
		require.Greater(t, len(client.send.blocks.all), 1)
	})
	t.Run("none for Write", func(t *testing.T) {
		client, server := async.pair(t)
		registers := client.ep.pd
		client.ep.pd = &stingyPD{PD: registers}
		require.NoError(t, errors.Join(client.SetDeadline(time.Now().Add(patience)), server.SetDeadline(time.Now().Add(patience))))
		data := bytes.Repeat([]byte("0123456789"), 10_000)
		sent := make(chan error, 1)
		go func() {
			_, err := client.Write(data)
			client.ep.pd = registers
			_, again := client.Write(data)
			sent <- errors.Join(err, again, client.CloseWrite())
		}()
		got, err := io.ReadAll(server)
		require.NoError(t, err)
		require.NoError(t, <-sent)
		require.True(t, bytes.Equal(append(data[:len(data):len(data)], data...), got))
		require.NotEmpty(t, client.send.blocks.all, "with memory again, Write has a block")
	})
	t.Run("none for ReadFrom", func(t *testing.T) {
		eachFlavour(t, func(t *testing.T, fl flavour) {
			client, server := fl.pair(t)
			client.ep.pd = &stingyPD{PD: client.ep.pd}
			data := bytes.Repeat([]byte("0123456789"), 10_000)
			sent := make(chan error, 1)
			go func() {
				n, err := client.ReadFrom(bytes.NewReader(data))
				if n != int64(len(data)) {
					err = errors.Join(err, fmt.Errorf("%d of %d bytes", n, len(data)))
				}
				sent <- errors.Join(err, client.CloseWrite())
			}()
			got, err := io.ReadAll(server)
			require.NoError(t, err)
			require.NoError(t, <-sent)
			require.True(t, bytes.Equal(data, got))
		})
	})
	t.Run("none", func(t *testing.T) {
		client, _ := pair(t)
		client.ep.pd = &stingyPD{PD: client.ep.pd}
		before := MemoryInUse()
		for range 3 {
			_, err := client.Reserve(10)
			require.ErrorIs(t, err, ErrNoMemory)
		}
		require.LessOrEqual(t, MemoryInUse(), before)
		_, err := client.Write([]byte("no block needed"))
		require.NoError(t, err)
	})
}
