//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

var _ driver.Loader = ibvDriver{}

// Libraries loads both libraries and says which files they came from.
func (ibvDriver) Libraries() []verbs.Library {
	libibverbs := verbs.Library{Name: nameVerbs}
	librdmacm := verbs.Library{Name: nameCM}
	if l, err := loadVerbs(); err != nil {
		libibverbs.Err = err
	} else {
		libibverbs.Path = fileOf(l.getDeviceList)
	}
	if l, err := loadCM(); err != nil {
		librdmacm.Err = err
	} else {
		librdmacm.Path = fileOf(l.createEventChannel)
	}
	return []verbs.Library{libibverbs, librdmacm}
}

// fileOf is the file that the code at an address was loaded from, "" if that
// cannot be found out.
func fileOf(addr uintptr) string {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return ""
	}
	defer maps.Close()
	return mappedFile(maps, addr)
}

// mappedFile finds an address in what proc(5) calls maps.
func mappedFile(maps io.Reader, addr uintptr) string {
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		// 7f5c0a000000-7f5c0a021000 r-xp 00000000 fe:00 316526    /usr/lib/libibverbs.so.1
		area, rest, _ := strings.Cut(lines.Text(), " ")
		low, high, _ := strings.Cut(area, "-")
		from, err1 := strconv.ParseUint(low, 16, 64)
		to, err2 := strconv.ParseUint(high, 16, 64)
		if err1 != nil || err2 != nil || uint64(addr) < from || uint64(addr) >= to {
			continue
		}
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			return rest[i:]
		}
		return ""
	}
	return ""
}
