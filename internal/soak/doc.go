// Package soak runs connections for as long as it is told: they open, talk, half-close,
// run into deadlines, break off, die with their process and are made again, over RDMA and
// over TCP where that takes its place. All that arrives is compared with hashes, and at
// the end nothing may be left over. It has tests only.
//
//	go test ./internal/soak -run TestSoak -soak 1h -timeout 0 -v
//	go test ./internal/soak -run TestCycles -cycles 100000 -timeout 0 -v
//
// On a device of one's own RDMANET_DEVICE names it and RDMANET_TEST_ADDR an address of
// it with port 0. See docs/RELIABILITY.md and docs/OPERATIONS.md.
package soak
