package programs

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// startPostgres starts PostgreSQL with the empty databases direct and proxied.
func startPostgres(t *testing.T) (address string) {
	t.Helper()
	initdb, createdb := need(t, "initdb", "postgresql"), need(t, "createdb", "postgresql")
	initdb, err := filepath.EvalSymlinks(initdb)
	require.NoError(t, err)
	server := filepath.Join(filepath.Dir(initdb), "postgres") // of the same version
	a, port := unprivileged(t, "postgres"), freePort(t)
	dir := a.dir(t)
	data := filepath.Join(dir, "data")
	a.run(t, dir, initdb, "--pgdata", data, "--username", "postgres", "--auth", "trust", "--no-sync", "--locale", "C", "--encoding", "UTF8")
	// SIGINT is its fast shutdown.
	address = a.serve(t, dir, port, syscall.SIGINT, server, "-D", data, "-p", strconv.Itoa(port), "-k", dir,
		"-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "shared_buffers=32MB", "-c", "log_min_messages=fatal")
	for _, name := range []string{"direct", "proxied"} {
		require.Eventually(t, func() bool { // it may still be starting up
			return a.command(dir, syscall.SIGKILL, createdb, append(pgArgs(address), name)...).Run() == nil
		}, patience, 100*time.Millisecond)
	}
	return address
}

// pgArgs are the arguments of PostgreSQL's programs that lead to a server.
func pgArgs(address string) []string {
	host, port, _ := net.SplitHostPort(address)
	return []string{"-h", host, "-p", port, "-U", "postgres"}
}

// TestPgbench runs pgbench straight and through proxies. Its tables tell afterwards
// whether a transaction was lost or made twice.
func TestPgbench(t *testing.T) {
	pgbench, psql := need(t, "pgbench", "postgresql"), need(t, "psql", "postgresql")
	direct := startPostgres(t)
	through := behindProxies(t, direct)
	const clients, transactions = 8, 100
	runs := []string{"-M simple", "-M prepared", "-C"} // -C: a connection for each transaction
	for name, address := range map[string]string{"direct": direct, "proxied": through} {
		bench := func(args string) string {
			return output(t, pgbench, append(append(pgArgs(address), strings.Fields(args)...), name)...)
		}
		bench("-i -q -s 2")
		for _, run := range append(runs, "-S -M extended") {
			out := bench(fmt.Sprintf("-n -c %d -j 2 -t %d %s", clients, transactions, run))
			assert.Contains(t, out, fmt.Sprintf("number of transactions actually processed: %d/%[1]d\n", clients*transactions), run)
			assert.Contains(t, out, "number of failed transactions: 0 ", run)
		}
	}
	const check = `SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)
		AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(delta) FROM pgbench_history)
		AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(delta) FROM pgbench_history),
		(SELECT count(*) FROM pgbench_history)`
	for _, name := range []string{"direct", "proxied"} {
		for _, address := range []string{direct, through} {
			out := output(t, psql, append(pgArgs(address), "-X", "-A", "-t", "-c", check, name)...)
			assert.Equal(t, fmt.Sprintf("t|%d\n", len(runs)*clients*transactions), out, "sums of the balances and of the history, %s", name)
		}
	}
}

// TestPsqlScript runs a script straight and through proxies: what psql prints is the
// same, errors included.
func TestPsqlScript(t *testing.T) {
	psql := need(t, "psql", "postgresql")
	direct := startPostgres(t)
	through := behindProxies(t, direct)
	script, err := filepath.Abs("testdata/script.sql")
	require.NoError(t, err)
	run := func(address, name string) string {
		cmd := account{}.command(".", syscall.SIGKILL, psql, append(pgArgs(address), "-X", "-a", "-f", script, name)...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	want, got := run(direct, "direct"), run(through, "proxied")
	assert.Greater(t, len(want), 4<<20)
	for _, part := range []string{"ERROR:  division by zero", "NOTICE:  table \"nothing\" does not exist, skipping", "COPY 100000"} {
		assert.Contains(t, want, part)
	}
	if want != got {
		dir := t.TempDir()
		_ = os.WriteFile(filepath.Join(dir, "want"), []byte(want), 0o600)
		_ = os.WriteFile(filepath.Join(dir, "got"), []byte(got), 0o600)
		diff, _ := account{}.command(dir, syscall.SIGKILL, "diff", "want", "got").CombinedOutput()
		assert.Fail(t, "other output through the proxies", "%.4000s", diff)
	}
}

// TestPgx uses database/sql with rdmanet's dialer and the proxy beside the server.
func TestPgx(t *testing.T) {
	w := dialsTo(t, besideServer(t, startPostgres(t)))
	config, err := pgx.ParseConfig("postgres://postgres@" + serverName + ":5432/direct?sslmode=disable")
	require.NoError(t, err)
	config.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	config.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) { return w.Dial(ctx) }
	db := stdlib.OpenDB(*config)
	defer db.Close()
	db.SetMaxOpenConns(10)
	db.SetMaxIdleConns(10)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()

	_, err = db.ExecContext(ctx, "CREATE TABLE things (id int PRIMARY KEY, data bytea)")
	require.NoError(t, err)
	require.NoError(t, together(40, func(i int) error {
		data := random(i*i*2000, byte(i))
		if _, err := db.ExecContext(ctx, "INSERT INTO things VALUES ($1, $2)", i, data); err != nil {
			return err
		}
		var got []byte
		if err := db.QueryRowContext(ctx, "SELECT data FROM things WHERE id = $1", i).Scan(&got); err != nil {
			return err
		}
		if !bytes.Equal(data, got) {
			return errors.New("not what was inserted")
		}
		return nil
	}))
	assert.Greater(t, w.count(), 1, "a pool")

	rows, err := db.QueryContext(ctx, "SELECT n, repeat('x', 100) FROM generate_series(1, 100000) n")
	require.NoError(t, err)
	defer rows.Close()
	for want := 1; rows.Next(); want++ {
		var n int
		var s string
		require.NoError(t, rows.Scan(&n, &s))
		require.Equal(t, want, n)
	}
	require.NoError(t, rows.Err())

	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
	require.NoError(t, err)
	_, err = tx.ExecContext(ctx, "DELETE FROM things")
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	var n int
	require.NoError(t, db.QueryRowContext(ctx, "SELECT count(*) FROM things").Scan(&n))
	assert.Equal(t, 40, n)

	// Giving up a query sends its cancellation over a connection of its own.
	impatient, giveUp := context.WithTimeout(ctx, 50*time.Millisecond)
	defer giveUp()
	_, err = db.ExecContext(impatient, "SELECT pg_sleep(3600)")
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	require.Eventually(t, func() bool {
		var sleeping int
		err := db.QueryRowContext(ctx, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(3600)' AND state = 'active'").Scan(&sleeping)
		return err == nil && sleeping == 0
	}, patience, 10*time.Millisecond, "the server gives up as well")

	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.Raw(func(driver any) error {
		c := driver.(*stdlib.Conn).Conn()
		if _, err := c.Exec(ctx, "LISTEN news"); err != nil {
			return err
		}
		if _, err := db.ExecContext(ctx, "SELECT pg_notify('news', 'hello')"); err != nil {
			return err
		}
		got, err := c.WaitForNotification(ctx)
		if err == nil && got.Payload != "hello" {
			err = errors.New("another notification")
		}
		if err != nil {
			return err
		}
		copied, err := c.CopyFrom(ctx, pgx.Identifier{"things"}, []string{"id", "data"}, pgx.CopyFromSlice(5000, func(i int) ([]any, error) {
			return []any{1000 + i, random(1000, byte(i))}, nil
		}))
		if err == nil && copied != 5000 {
			err = fmt.Errorf("%d rows copied", copied)
		}
		return err
	}))
}
