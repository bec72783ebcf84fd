package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
)

// writeHeader prints configuration lines as benchstat knows them, of what the
// benchmarks do not print themselves.
func writeHeader(w io.Writer) error {
	_, err := fmt.Fprintf(w, "goversion: %s\nprocessors: %d\n", runtime.Version(), runtime.NumCPU())
	if err == nil && runtime.GOOS == "linux" {
		var release []byte
		if release, err = os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
			_, err = fmt.Fprintf(w, "kernel: %s\n", kernelVersion(string(release)))
		}
	}
	return err
}

var versionPrefix = regexp.MustCompile(`^[0-9]+\.[0-9]+`)

// kernelVersion leaves of a release what others know it by.
func kernelVersion(release string) string {
	if v := versionPrefix.FindString(release); v != "" {
		return v
	}
	return "unknown"
}
