//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"os"
	"testing"
)

// needVerbs loads libibverbs, which a machine without RDMA need not have.
func needVerbs(t *testing.T) *libibverbs {
	t.Helper()
	lib, err := loadVerbs()
	if err != nil {
		const hint = "libibverbs is needed: apt-get install libibverbs-dev librdmacm-dev"
		if os.Getenv("CI") != "" {
			t.Fatalf("%s\n%v", hint, err)
		}
		t.Skipf("%s\n%v", hint, err)
	}
	return lib
}
