package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
)

// loseOnePercent has both ends of the link lose packets until repair is called. No
// connection may be open: soft-RoCE gives one up while the queueing discipline changes.
func loseOnePercent(ctx context.Context) (repair func(), err error) {
	links := []string{"rx0", "rx1"}
	for _, link := range links {
		err = errors.Join(err, tc(ctx, "add", "dev", link, "root", "netem", "limit", "10000", "loss", "1%"))
	}
	return func() {
		for _, link := range links {
			_ = tc(context.WithoutCancel(ctx), "del", "dev", link, "root")
		}
	}, err
}

func tc(ctx context.Context, args ...string) error {
	output, err := exec.CommandContext(ctx, "tc", append([]string{"qdisc"}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("tc: %w: %s", err, bytes.TrimSpace(output))
	}
	return nil
}
