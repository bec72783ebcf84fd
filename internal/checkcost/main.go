// Checkcost measures what it costs to check all that a peer says: it builds the
// benchmarks once as they are and once without the checks, runs a stream of 64 B writes
// over either by turns, and prints the rate with the checks as a share of that without.
//
//	go run ./internal/checkcost -rounds 20
//
// Leave the machine alone meanwhile. -build DIR only builds, and -from DIR measures what
// was built.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

func main() {
	rounds := flag.Int("rounds", 20, "how often either is measured")
	each := flag.String("benchtime", "0.3s", "how long a measurement takes, as for go test")
	build := flag.String("build", "", "build into this directory and measure nothing")
	from := flag.String("from", "", "measure what was built in this directory")
	flag.Parse()
	if err := run(*rounds, *each, *build, *from); err != nil {
		fmt.Fprintln(os.Stderr, "checkcost:", err)
		os.Exit(1)
	}
}

func run(rounds int, each, build, from string) error {
	dir := cmp.Or(build, from)
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "checkcost"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	with, without := filepath.Join(dir, "with.test"), filepath.Join(dir, "without.test")
	if from == "" {
		root, err := filepath.Abs(".")
		if err != nil {
			return err
		}
		overlay, err := writeOverlay(root, dir)
		if err != nil {
			return err
		}
		if err := goTool("test", "-c", "-o", with, "."); err != nil {
			return err
		}
		if err := goTool("test", "-c", "-overlay", overlay, "-o", without, "."); err != nil {
			return err
		}
	}
	if build != "" {
		return nil
	}
	var shares []float64
	for i := range rounds {
		pair := []string{with, without}
		if i%2 == 1 { // so that neither always comes first
			slices.Reverse(pair)
		}
		took := map[string]float64{}
		for _, binary := range pair {
			ns, err := measure(binary, each)
			if err != nil {
				return err
			}
			took[binary] = ns
		}
		shares = append(shares, took[without]/took[with])
	}
	slices.Sort(shares)
	at := func(q float64) float64 { return shares[int(q*float64(len(shares)-1)+0.5)] }
	fmt.Printf("the rate of 64 B writes with the checks is %.3f of that without, the median of %d rounds (quartiles %.3f to %.3f)\n",
		at(0.5), len(shares), at(0.25), at(0.75))
	return nil
}

func goTool(args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd.Run()
}

var nsPerOp = regexp.MustCompile(`\s([0-9.]+) ns/op`)

// measure returns the time of one message.
func measure(binary, each string) (float64, error) {
	cmd := exec.Command(binary, "-test.run=^$", "-test.bench=^BenchmarkStream$/^size=64B$/^procs=one$/^transport=rdma$", "-test.benchtime="+each)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, err
	}
	m := nsPerOp.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("%s printed no time:\n%s", binary, out)
	}
	return strconv.ParseFloat(string(m[1]), 64)
}
