package programs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// startRedis starts an empty Redis server.
func startRedis(t *testing.T) (address string) {
	t.Helper()
	program := need(t, "redis-server", "redis-server")
	a, port := unprivileged(t, "redis"), freePort(t)
	dir := a.dir(t)
	return a.serve(t, dir, port, syscall.SIGTERM, program, "--bind", "127.0.0.1", "--port", strconv.Itoa(port),
		"--save", "", "--appendonly", "no", "--dir", dir, "--enable-debug-command", "yes")
}

// TestRedisBenchmark has the benchmark write the same to two servers, to one of them
// through proxies, and compares what they hold then.
func TestRedisBenchmark(t *testing.T) {
	benchmark, cli := need(t, "redis-benchmark", "redis-tools"), need(t, "redis-cli", "redis-tools")
	direct, proxied := startRedis(t), startRedis(t)
	through := behindProxies(t, proxied)
	hostPort := func(address string) []string {
		host, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		return []string{"-h", host, "-p", port}
	}
	for _, address := range []string{direct, through} {
		for _, args := range []string{
			"-n 5000 -c 50 -t ping,set,get,incr,lpush,rpush,lpop,sadd,hset,zadd,lrange_100,mset",
			"-n 20000 -c 50 -P 16 -t set,incr,lpush",
			"-n 500 -c 20 -d 100000 -t set,get",
			"-n 500 -c 20 -k 0 -t incr", // a connection for each request
		} {
			out := output(t, benchmark, append(hostPort(address), append(strings.Fields(args), "-q")...)...)
			assert.Contains(t, out, "requests per second")
			assert.NotContains(t, strings.ToLower(out), "error")
		}
	}
	ask := func(address string, args ...string) string {
		return output(t, cli, append(hostPort(address), args...)...)
	}
	for _, question := range []string{"DBSIZE", "DEBUG DIGEST", "GET counter:__rand_int__", "LLEN mylist"} {
		want := ask(direct, strings.Fields(question)...)
		assert.Equal(t, want, ask(proxied, strings.Fields(question)...), question)
		assert.Equal(t, want, ask(through, strings.Fields(question)...), "%s, asked through the proxies", question)
		assert.NotEqual(t, "0\n", want, question)
	}
}

// TestGoRedis uses the Go client with rdmanet's dialer and the proxy beside the server.
func TestGoRedis(t *testing.T) {
	w := dialsTo(t, besideServer(t, startRedis(t)))
	client := redis.NewClient(&redis.Options{
		Addr: serverName + ":6379", PoolSize: 20, ReadTimeout: patience, WriteTimeout: patience,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) { return w.Dial(ctx) },
	})
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()

	require.NoError(t, client.Ping(ctx).Err())
	assert.ErrorIs(t, client.Get(ctx, "nothing").Err(), redis.Nil)
	require.NoError(t, together(50, func(i int) error {
		key, value := fmt.Sprint("key", i), string(random(i*i*1000, byte(i)))
		if err := client.Set(ctx, key, value, 0).Err(); err != nil {
			return err
		}
		got, err := client.Get(ctx, key).Result()
		if err == nil && got != value {
			err = errors.New("not what was set")
		}
		return err
	}))
	assert.Greater(t, w.count(), 1, "a pool")

	cmds, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for range 10_000 {
			p.Incr(ctx, "counter")
		}
		return nil
	})
	require.NoError(t, err)
	assert.EqualValues(t, 10_000, cmds[9999].(*redis.IntCmd).Val())

	require.NoError(t, client.Watch(ctx, func(tx *redis.Tx) error {
		_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, "balance", 1, 0)
			return nil
		})
		return err
	}, "balance"))

	messages := client.Subscribe(ctx, "news")
	defer messages.Close()
	_, err = messages.Receive(ctx) // that it has subscribed
	require.NoError(t, err)
	for i := range 100 {
		require.NoError(t, client.Publish(ctx, "news", i).Err())
	}
	for i := range 100 {
		m, err := messages.ReceiveMessage(ctx)
		require.NoError(t, err)
		assert.Equal(t, strconv.Itoa(i), m.Payload)
	}

	popped := make(chan []string)
	go func() { popped <- client.BLPop(ctx, patience, "queue").Val() }()
	require.NoError(t, client.RPush(ctx, "queue", "work").Err())
	assert.Equal(t, []string{"queue", "work"}, <-popped)
}
