package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the programs printed in a machine, shortened.
const (
	writeBW = ` TX depth        : 128
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      938              0.00               58.60  		   0.000938
---------------------------------------------------------------------------------------
`
	writeBWSmall = ` 64         19500            0.00               0.59   		   0.009713
`
	sendLat = ` #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 64      1000          75.51          6112.84      97.05    	       204.25      	441.67 		2368.87 		6112.84
`
	stream64K = `name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer
custom    64k     100     1       12m         0.99s      0.11    4953.60
`
	cmtime200 = `creating id
resolving address
resolving route
creating qp
connecting
disconnecting
destroying id
step              total ms     max ms     min us  us / conn
create id    :        1.73       0.11       3.00       8.63
resolve addr :        9.55       7.51    2581.00      47.75
resolve route:        7.88       6.30     519.00      39.38
create qp    :       25.70       2.17      65.00     128.49
connect      :     2566.64    2551.54   63277.00   12833.22
disconnect   :     5777.15    5766.32 1627344.00   28885.78
destroy      :       31.54      28.43       7.00     157.72
`
	goBench = `goos: linux
BenchmarkEcho/size=64B/procs=two/transport=rdma-2 	     500	   1359920 ns/op	   0.05 MB/s	   1384448 p50-ns	       0 B/op
PASS
`
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name string
		want float64
		got  func() (float64, error)
	}{
		{"ib_write_bw", 58.60 * (1 << 20), func() (float64, error) { return parsePerftestRate(writeBW, 65536) }},
		{"ib_write_bw of small messages", 9713 * 64, func() (float64, error) { return parsePerftestRate(writeBWSmall, 64) }},
		{"ib_send_lat", 2 * 97.05e-6, func() (float64, error) { return parsePerftestTrip(sendLat) }},
		{"rstream", 4953.60e-6, func() (float64, error) { return parseRstream(stream64K) }},
		{"cmtime", 2566.64e-3, func() (float64, error) {
			seconds, failed, err := parseCmtime(cmtime200)
			require.Zero(t, failed)
			return seconds, err
		}},
		{"benchmark", 1359920, func() (float64, error) { return parseBenchmark(goBench, "ns/op") }},
		{"metric of a benchmark", 1384448, func() (float64, error) { return parseBenchmark(goBench, "p50-ns") }},
	} {
		got, err := c.got()
		require.NoError(t, err, c.name)
		require.InEpsilon(t, c.want, got, 1e-9, c.name)
	}
}

// A program that printed no result, or one of nothing, has failed.
func TestParseNothing(t *testing.T) {
	for _, output := range []string{"", "rsend: Connection reset by peer\n", sendLat[:60], " 64 0 0 0 0\n"} {
		_, err := parsePerftestRate(output, 64)
		require.Error(t, err, output)
		_, err = parsePerftestTrip(output)
		require.Error(t, err, output)
		_, err = parseRstream(output)
		require.Error(t, err, output)
		_, _, err = parseCmtime(output)
		require.Error(t, err, output)
		_, err = parseBenchmark(output, "ns/op")
		require.Error(t, err, output)
	}
	_, err := parsePerftestRate(writeBW, 4096)
	require.Error(t, err, "a result of another size")
	_, err = parseBenchmark(goBench, "p99-ns")
	require.Error(t, err, "a metric that is not there")
}

// cmtime takes connections that failed for a result, and of later versions says more in other units.
func TestParseCmtime(t *testing.T) {
	connecting := "connecting\n"
	for failures, want := range map[string]int{
		"event: RDMA_CM_EVENT_UNREACHABLE, error: -110\nevent: RDMA_CM_EVENT_REJECTED, error: 28\n": 2,
		"failure rconnecting: Cannot allocate memory\n":                                             1,
		"RDMA_CM_EVENT_ROUTE_ERROR, error: -110\n":                                                  1,
	} {
		output := strings.Replace(cmtime200, connecting, connecting+failures, 1)
		_, failed, err := parseCmtime(output)
		require.NoError(t, err)
		require.Equal(t, want, failed, failures)
		failed, counted := parseFailures(output)
		require.True(t, counted)
		require.Equal(t, want, failed, failures)
	}
	_, _, err := parseCmtime(strings.Replace(cmtime200, "2566.64", "0.00", 1))
	require.Error(t, err)
	_, _, err = parseCmtime(strings.Replace(cmtime200, "connect      :", "connect      ", 1))
	require.Error(t, err)
	_, _, err = parseCmtime("step             avg/iter  total(us)    us/conn    sum(us)    max(us)    min(us)\n" +
		"connect               12      24000         60      12000        100         10\n")
	require.ErrorContains(t, err, "before 52")
}

// A client of any program that came before its server listened comes again.
func TestRefused(t *testing.T) {
	for output, want := range map[string]bool{
		"Couldn't connect to 10.9.0.2:18515\n":            true,
		"rsdial: Connection refused\n":                    true,
		"event: RDMA_CM_EVENT_REJECTED, error: 8\n":       true,
		"event: RDMA_CM_EVENT_REJECTED, error: 28\n":      false,
		"event: RDMA_CM_EVENT_UNREACHABLE, error: -110\n": false,
		cmtime200: false,
	} {
		require.Equal(t, want, refused([]byte(output)), output)
	}
}
