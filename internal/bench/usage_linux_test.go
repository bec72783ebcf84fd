package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// measureProcess fills in what the kernel knows of this process.
func (u *usage) measureProcess() error {
	rollup, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		return err
	}
	var mapped int64
	for line := range bytes.Lines(rollup) {
		key, rest, _ := bytes.Cut(line, []byte(":"))
		into := map[string]*int64{"Rss": &u.Resident, "Pss": &u.Proportional, "Pss_Shmem": &mapped}[string(key)]
		if into == nil {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(string(rest)), " kB"), 10, 64)
		if err != nil {
			return err
		}
		*into = kib << 10
	}
	// A page of a memfd counts where the memfd is open, which is in one process: nobody
	// need have mapped it.
	shared, err := sharedMemory()
	if err != nil {
		return err
	}
	u.Proportional += shared - mapped
	if u.Descriptors, err = countFiles(); err != nil {
		return err
	}
	u.Mappings, err = countMappings()
	return err
}

// sharedMemory is what the memfds that this process has open have of memory.
func sharedMemory() (sum int64, err error) {
	const dir = "/proc/self/fd/"
	files, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	seen := map[uint64]bool{}
	for _, f := range files {
		if name, err := os.Readlink(dir + f.Name()); err != nil || !strings.HasPrefix(name, "/memfd:") {
			continue // or closed meanwhile
		}
		var st syscall.Stat_t
		if syscall.Stat(dir+f.Name(), &st) == nil && !seen[st.Ino] {
			seen[st.Ino] = true
			sum += st.Blocks * 512
		}
	}
	return sum, nil
}

func countFiles() (int64, error) {
	d, err := os.Open("/proc/self/fd")
	if err != nil {
		return 0, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	return int64(len(names)) - 1, err // not d itself
}

func countMappings() (n int64, err error) {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		n++
	}
	return n, lines.Err()
}

// cpuTime is what this process has used so far, user and system.
func cpuTime() (time.Duration, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}

// processLimits is how many descriptors and mappings a process of this machine may
// have. Go has raised the soft limit of descriptors to the hard one.
func processLimits() (descriptors, mappings int64, err error) {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return 0, 0, err
	}
	text, err := os.ReadFile("/proc/sys/vm/max_map_count")
	if err != nil {
		return 0, 0, err
	}
	mappings, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("vm.max_map_count: %w", err)
	}
	return int64(min(files.Cur, 1<<30)), mappings, nil
}
