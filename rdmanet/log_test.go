package rdmanet

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

// recorder is a handler that keeps what is logged.
type recorder struct {
	level   slog.Level
	records chan slog.Record
}

func newRecorder(level slog.Level) *recorder { return &recorder{level, make(chan slog.Record, 100)} }

func (r *recorder) Enabled(_ context.Context, level slog.Level) bool { return level >= r.level }
func (r *recorder) Handle(_ context.Context, record slog.Record) error {
	r.records <- record
	return nil
}
func (r *recorder) WithAttrs([]slog.Attr) slog.Handler { return r }
func (r *recorder) WithGroup(string) slog.Handler      { return r }

func attrs(record slog.Record) map[string]string {
	m := map[string]string{}
	record.Attrs(func(a slog.Attr) bool {
		m[a.Key] = a.Value.String()
		return true
	})
	return m
}

func TestLogOfConn(t *testing.T) {
	r := newRecorder(slog.LevelInfo)
	client, _ := flavour{dialer: Dialer{Logger: slog.New(r)}}.pair(t)
	client.ep.log(slog.LevelWarn, "rdmanet: something", "err", errors.New("cause"))
	client.ep.log(slog.LevelDebug, "rdmanet: not wanted")
	record := <-r.records
	require.Equal(t, "rdmanet: something", record.Message)
	require.Equal(t, map[string]string{
		"device": client.Device(), "local": client.LocalAddr().String(), "remote": client.RemoteAddr().String(), "err": "cause",
	}, attrs(record))
	require.Empty(t, r.records)
}

// TestLogWithLocksHeld has a handler use the connection that the line is about, where
// the library holds its locks.
func TestLogWithLocksHeld(t *testing.T) {
	r := newRecorder(slog.LevelInfo)
	used := make(chan error, 1)
	var client *Conn
	h := &using{recorder: r, use: func() {
		_, err := client.Write([]byte("logged"))
		used <- err
	}}
	client, server := flavour{dialer: Dialer{Logger: slog.New(h)}}.pair(t)
	client.recv.mu.Lock()
	client.send.mu.Lock()
	client.ep.log(slog.LevelWarn, "rdmanet: something")
	client.send.mu.Unlock()
	client.recv.mu.Unlock()
	require.NoError(t, <-used)
	require.Equal(t, "logged", string(readFull(t, server, 6)))
}

type using struct {
	*recorder
	use func()
}

func (h *using) Handle(ctx context.Context, record slog.Record) error {
	h.use()
	return h.recorder.Handle(ctx, record)
}

// TestLogSilence checks that nothing is logged in the ordinary life of a connection.
func TestLogSilence(t *testing.T) {
	r := newRecorder(slog.LevelDebug)
	logger := slog.New(r)
	client, server, err := dialPair(&Dialer{Logger: logger}, &ListenConfig{Logger: logger})
	require.NoError(t, err)
	for range 1000 {
		write(t, client, 100)
		readFull(t, server, 100)
	}
	require.NoError(t, client.Close())
	readEOF(t, server)
	require.NoError(t, server.Close())
	<-client.torn
	<-server.torn
	for len(r.records) > 0 {
		record := <-r.records
		require.Equal(t, "rdmanet: disconnect", record.Message, "the end that comes second may find nobody")
		require.Equal(t, slog.LevelDebug, record.Level)
	}
}
