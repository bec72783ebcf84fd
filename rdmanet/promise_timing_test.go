//go:build timing

package rdmanet

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"
)

// runsEach is how often a test is run until its promises are kept: the machine may have had
// something else to do.
const runsEach = 3

var promisesMu sync.Mutex

// holdPromises runs a test until every promise that it makes was kept in one of its runs,
// each time that it was made, and no more than runsEach times.
func holdPromises(t *testing.T, test func(*testing.T)) {
	t.Helper()
	kept := map[string]bool{} // by test and what is promised
	broken := map[string]string{}
	var worst []string
	for run := 1; run <= runsEach; run++ {
		late := map[string]string{}
		made := map[string]bool{}
		passed := t.Run(fmt.Sprintf("run %d", run), func(t *testing.T) {
			within := t.Name()
			recordPromise = func(test, what string, took, bound time.Duration) {
				promisesMu.Lock()
				defer promisesMu.Unlock()
				key := strings.TrimPrefix(test, within) + ": " + what
				made[key] = true
				if took > bound {
					late[key] = fmt.Sprintf("%s took %v, where %v are promised", key, took, bound)
				}
			}
			defer func() { recordPromise = nil }()
			test(t)
		})
		if !passed {
			return
		}
		if len(made) == 0 {
			t.Fatal("nothing was promised")
		}
		for key := range made {
			if late[key] == "" {
				kept[key] = true
			}
		}
		maps.Copy(broken, late)
		worst = worst[:0]
		for key, text := range broken { // a run of random moments need not make each promise
			if !kept[key] {
				worst = append(worst, text)
			}
		}
		t.Logf("run %d of at most %d: %d promises, %d not kept so far\n%s", run, runsEach, len(made), len(worst), strings.Join(worst, "\n"))
		if len(worst) == 0 {
			return
		}
	}
	t.Errorf("promises not kept in any of %d runs:\n%s", runsEach, strings.Join(worst, "\n"))
}
