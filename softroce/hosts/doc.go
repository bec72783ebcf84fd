// Package hosts tests connections between two hosts while their network, their
// processes, their RDMA devices and they themselves fail. It has tests only.
//
// The tests need two machines of their own, which softroce/faults makes. Host 0 runs
// them. On each host an Agent runs the system's commands and starts and kills
// processes; each process is a Worker and holds one end of connections. The tests
// drive all of them by net/rpc over a network that no fault touches.
//
// What each case shows is told in docs/TESTING.md.
package hosts
