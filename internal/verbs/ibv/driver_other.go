//go:build !linux || !(amd64 || arm64) || noverbs

package ibv

import (
	"fmt"
	"net/netip"
	"runtime"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// Driver returns the driver. It is registered by package drivers, which decides
// on the order.
func Driver() driver.Driver { return ibvDriver{} }

// driver stands for the driver where there are no RDMA devices for this program.
type ibvDriver struct{}

var errPlatform = fmt.Errorf("%w: this program was built without libibverbs; build it for linux on amd64 or arm64 (this is %s/%s) and without the tag noverbs",
	verbs.ErrNotSupported, runtime.GOOS, runtime.GOARCH)

func (ibvDriver) Name() string { return "ibv" }

func (ibvDriver) Devices() ([]verbs.Device, error) { return nil, errPlatform }

func (ibvDriver) Route(string, netip.Addr) (driver.Route, error) { return driver.Route{}, errPlatform }

func (ibvDriver) CreateID(string, driver.CMSink) (driver.CMID, error) { return nil, errPlatform }
