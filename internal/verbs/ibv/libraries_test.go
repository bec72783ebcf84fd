//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// Each library is either loaded from a file of its name or says what to install.
func TestLibraries(t *testing.T) {
	all := ibvDriver{}.Libraries()
	require.Len(t, all, 2)
	for i, name := range []string{"libibverbs.so.1", "librdmacm.so.1"} {
		lib := all[i]
		assert.Equal(t, name, lib.Name)
		if lib.Err != nil {
			var e *verbs.LibraryError
			require.ErrorAs(t, lib.Err, &e)
			assert.NotEmpty(t, e.Package)
			assert.Empty(t, lib.Path)
			continue
		}
		assert.True(t, filepath.IsAbs(lib.Path), lib.Path)
		assert.True(t, strings.HasPrefix(filepath.Base(lib.Path), name), lib.Path)
	}
}

func TestMappedFile(t *testing.T) {
	const maps = `00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/dbus daemon
7f00-7f10 r--p 00000000 fe:00 1  /usr/lib/libone.so.1.2
7f10-7f20 r-xp 00010000 fe:00 1  /usr/lib/libone.so.1.2
7f20-7f30 rw-p 00000000 00:00 0 
nonsense
7f40-7f50 rw-p 00000000 00:00 0  [heap]
`
	for addr, want := range map[uintptr]string{
		0x400000: "/usr/bin/dbus daemon",
		0x7f00:   "/usr/lib/libone.so.1.2",
		0x7f1f:   "/usr/lib/libone.so.1.2",
		0x7f20:   "", // anonymous
		0x7f40:   "",
		0x7f50:   "", // the end is outside
	} {
		assert.Equal(t, want, mappedFile(strings.NewReader(maps), addr), "%#x", addr)
	}
}
