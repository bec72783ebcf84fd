package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Here no soft-RoCE device sends anything: what is to go by one has gone another way.
func TestProveCarrier(t *testing.T) {
	const output = "BenchmarkEcho/size=64B/procs=two/transport=smc 600 1000 ns/op"
	before := readCarriers()
	smc := echo("SMC-R", "", "Echo", "smc", 64, 600, "ns/op")
	require.ErrorContains(t, smc.proveCarrier(output, before), "its work takes 600: the bytes went another way")
	require.NoError(t, smc.proveCarrier(output, before-600))
	require.Error(t, smc.proveCarrier(output, before-599))
	require.NoError(t, echo("TCP", "", "Echo", "tcp", 64, 600, "ns/op").proveCarrier(output, before))
	require.Error(t, echo("TCP", "", "Echo", "tcp", 64, 600, "ns/op").proveCarrier(output, before-600))
	require.Error(t, writeBandwidth("ib_write_bw", 64, 1).proveCarrier("", before))
	n, err := stream(ours, "", "rdma", 64, 1).packets("BenchmarkStream/size=64B 6400 10 ns/op")
	require.NoError(t, err)
	require.Equal(t, 100, n)
}
