package verbstest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
)

// objectKinds are what the kernel tells of a process's RDMA objects.
var objectKinds = []string{"qp", "cq", "mr", "pd", "cm_id", "ctx"}

// A kernelObject is what the rdma tool says of the owner of an object: the thread that made
// it, as long as that lives, or a module of the kernel by its name alone.
type kernelObject struct {
	PID  int
	Comm string
}

// ours reports whether this process may have made the object. Nobody can tell whose a thread
// was that has ended, so the objects of such threads count as this process's.
func (o kernelObject) ours() bool {
	if o.PID == 0 {
		return o.Comm == ""
	}
	_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", o.PID))
	return err == nil
}

// KernelObjects counts the RDMA objects that the kernel holds for this process, by
// kind. What a driver forgot to destroy is among them until the process ends, when
// nobody can tell any more. It asks the rdma tool of iproute2; an error for which
// errors.Is finds exec.ErrNotFound says that there is none. Without RDMA in the kernel
// there is nothing to ask for.
func KernelObjects() (map[string]int, error) {
	if _, err := os.Stat("/sys/class/infiniband"); err != nil {
		return nil, nil
	}
	counts := map[string]int{}
	for _, kind := range objectKinds {
		out, err := exec.Command("rdma", "-j", "resource", "show", kind).Output()
		if err != nil {
			return nil, fmt.Errorf("rdma resource show %s: %w", kind, err)
		}
		var objects []kernelObject
		if err := json.Unmarshal(out, &objects); err != nil {
			return nil, fmt.Errorf("rdma resource show %s: %w", kind, err)
		}
		for _, o := range objects {
			if o.ours() {
				counts[kind]++
			}
		}
	}
	return counts, nil
}
