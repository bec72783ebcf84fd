package soak

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"
)

// guestVar makes this test binary a guest: "seed clients addresses".
const guestVar = "RDMANET_TEST_SOAK_GUEST"

// Guests are killed, or they leave.
const (
	guests       = 2
	guestClients = 4
)

// runGuest has a population in a process of its own, whose clients go to the host, too.
// It leaves when its input ends, and must leave nothing behind.
func runGuest(task string) error {
	var seed uint64
	var clients int
	var at addrs
	if _, err := fmt.Sscan(task, &seed, &clients, &at.rdma, &at.tcp); err != nil {
		return err
	}
	before, err := takeInventory()
	if err != nil {
		return err
	}
	p, err := newPopulation(seed, func(what string, err error) {
		fmt.Fprintf(os.Stderr, "a guest: %s: %v\n", what, err)
		os.Exit(1)
	})
	if err != nil {
		return err
	}
	p.add(&target{at: at})
	fmt.Println(p.at.rdma, p.at.tcp)
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	p.liveAll(ctx, clients)
	<-ctx.Done()
	if err := p.close(); err != nil {
		return err
	}
	if left := before.left(); left != "" {
		return fmt.Errorf("a guest left behind:\n%s", left)
	}
	return nil
}

// A guest is such a process, from outside.
type guest struct {
	cmd *exec.Cmd
	in  io.Closer
	t   *target
}

func startGuest(t testing.TB, seed uint64, clients int, at addrs) (*guest, error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), guestVar+"="+fmt.Sprintf("%d %d %s %s", seed, clients, at.rdma, at.tcp), "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("a guest does not start: %w", cmd.Wait())
	}
	theirs := new(target)
	if _, err := fmt.Sscan(line, &theirs.at.rdma, &theirs.at.tcp); err != nil {
		return nil, err
	}
	return &guest{cmd, in, theirs}, nil
}

// kill kills the guest in the midst of everything.
func (g *guest) kill(p *population) error {
	g.t.dying.Store(true)
	p.willDie()
	defer p.remove(g.t)
	if err := g.cmd.Process.Kill(); err != nil {
		return err
	}
	if err := g.cmd.Wait(); g.cmd.ProcessState.Exited() {
		return fmt.Errorf("a guest had ended before it was killed: %w", err)
	}
	return nil
}

// leave has it end when nobody uses its server any more.
func (g *guest) leave(p *population) error {
	p.remove(g.t)
	g.t.lives.Wait()
	if err := g.in.Close(); err != nil {
		return err
	}
	return g.cmd.Wait()
}

// runGuests has guests come and go until the context ends.
func (p *population) runGuests(ctx context.Context, t testing.TB, which int) error {
	rng := rand.New(rand.NewPCG(p.seed, 1<<62|uint64(which)))
	for ctx.Err() == nil {
		g, err := startGuest(t, rng.Uint64(), guestClients, p.at)
		if err != nil {
			return err
		}
		p.add(g.t)
		select {
		case <-ctx.Done():
		case <-time.After(slowly(time.Duration(rng.Int64N(int64(time.Second))))):
		}
		if rng.IntN(3) > 0 && ctx.Err() == nil {
			err = g.kill(p)
		} else {
			err = g.leave(p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
