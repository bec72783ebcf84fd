package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// carriers are how many packets the soft-RoCE devices of the machine have sent. Whatever a
// program says of itself, these tell which way its bytes went: the software device, or TCP
// that SMC has fallen back to, leave them alone.
type carriers int

// counterLife is how long the kernel shows a counter that it has read before.
const counterLife = 20 * time.Millisecond

func readCarriers() (sent carriers) {
	time.Sleep(counterLife)
	files, _ := filepath.Glob("/sys/class/infiniband/rxe*/ports/1/hw_counters/sent_pkts")
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err == nil {
			sent += carriers(n)
		}
	}
	return sent
}

// strayPackets is how many packets may be sent while nobody uses the devices: what is left
// of the program before.
const strayPackets = 64

// proveCarrier fails unless the bytes of what was measured went by the devices, for
// programs of RDMA, or past them.
func (p program) proveCarrier(output string, before carriers) error {
	sent := int(readCarriers() - before)
	if !p.rdma {
		if sent > strayPackets {
			return fmt.Errorf("soft-RoCE carried %d packets meanwhile: it was to be TCP", sent)
		}
		return nil
	}
	least := 1
	if p.packets != nil {
		n, err := p.packets(output)
		if err != nil {
			return err
		}
		least = max(least, n)
	}
	if sent < least {
		return fmt.Errorf("soft-RoCE carried %d packets, where its work takes %d: the bytes went another way", sent, least)
	}
	return nil
}
