//go:build timing

package rdmanet

import (
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// skipListed skips a test that runs another, if that is skipped.
func skipListed(t *testing.T, test func(*testing.T)) {
	t.Helper()
	name := runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()
	name = name[strings.LastIndexByte(name, '.')+1:]
	for _, s := range linkSkips {
		if overLinks && slices.Contains(strings.Fields(s.tests), name) {
			t.Skipf("%s: %s", name, s.reason)
		}
	}
}
