package main

import (
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
		_, err = parseBenchmark(output, "ns/op")
		require.Error(t, err, output)
	}
	_, err := parsePerftestRate(writeBW, 4096)
	require.Error(t, err, "a result of another size")
	_, err = parseBenchmark(goBench, "p99-ns")
	require.Error(t, err, "a metric that is not there")
}
