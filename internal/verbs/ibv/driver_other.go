//go:build !linux || !(amd64 || arm64) || noverbs

package ibv

import (
	"fmt"
	"net/netip"
	"runtime"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// Driver returns the driver. It is registered by package drivers, which decides
// on the order.
func Driver() verbs.Driver { return driver{} }

// driver stands for the driver where there are no RDMA devices for this program.
type driver struct{}

var errPlatform = fmt.Errorf("%w: this program was built without libibverbs; build it for linux on amd64 or arm64 (this is %s/%s) and without the tag noverbs",
	verbs.ErrNotSupported, runtime.GOOS, runtime.GOARCH)

func (driver) Name() string { return "ibv" }

func (driver) Devices() ([]verbs.Device, error) { return nil, errPlatform }

func (driver) Route(string, netip.Addr) (verbs.Route, error) { return verbs.Route{}, errPlatform }

func (driver) CreateID(string, verbs.CMSink) (verbs.CMID, error) { return nil, errPlatform }
