package rdmanet

import (
	"context"
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
	<-client.done()
	<-server.done()
	for len(r.records) > 0 {
		record := <-r.records
		require.Equal(t, "rdmanet: disconnect", record.Message, "the end that comes second may find nobody")
		require.Equal(t, slog.LevelDebug, record.Level)
	}
}
