package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// profile leaves in dir a profile of this library at each work that misses a target, with
// what the benchmark counted. With an empty dir it does nothing.
func profile(ctx context.Context, dir string, groups []group, results []result) (err error) {
	if dir == "" {
		return nil
	}
	for _, g := range groups {
		if g.lossy || !missesOne(g.name, results) {
			continue // where packets are lost the processor waits
		}
		for _, p := range g.runs {
			if p.name == ours {
				err = errors.Join(err, profileOne(ctx, filepath.Join(dir, strings.NewReplacer(" ", "-", ",", "").Replace(g.name)), p))
			}
		}
	}
	return err
}

func profileOne(ctx context.Context, file string, p program) error {
	output, err := p.profile(ctx, file+".pprof")
	if err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	return os.WriteFile(file+".txt", []byte(output), 0o644)
}

func missesOne(group string, results []result) bool {
	for _, r := range results {
		if r.group == group && r.missed() {
			return true
		}
	}
	return false
}
