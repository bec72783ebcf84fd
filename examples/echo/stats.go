package main

import (
	"fmt"
	"io"
	"net"

	"github.com/rdmanet/go-rdmanet/internal/cli/endpoint"
)

// printStats prints what the connection counted. docs/OPERATIONS.md says how to read it.
func printStats(w io.Writer, conn net.Conn) {
	s, ok := endpoint.Stats(conn)
	if !ok {
		fmt.Fprintln(w, "\nno counters: this is not an RDMA connection")
		return
	}
	fmt.Fprintf(w, `
written      %d bytes in %d messages, %d doorbells
read         %d bytes in %d messages, %d doorbells
copies       %d bytes copied, %d placed without a copy
wake-ups     %d sent, %d suppressed
waits        %d ended while spinning, %d parked
credits      %d sent, %d received, %d stalls of %v together
`,
		s.BytesWritten, s.MessagesSent, s.DoorbellsSent,
		s.BytesRead, s.MessagesReceived, s.DoorbellsReceived,
		s.BytesCopied, s.BytesPlaced,
		s.WakeupsSent, s.WakeupsSuppressed,
		s.Spins, s.Parks,
		s.CreditsSent, s.CreditsReceived, s.CreditStalls, s.CreditStallTime)
}
