//go:build !linux || !(amd64 || arm64)

package soft

import (
	"fmt"
	"net/netip"
	"runtime"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func init() { driver.Register(softDriver{}) }

// driver stands for the driver where there is no software device on this system.
type softDriver struct{}

var errPlatform = fmt.Errorf("%w: the software device needs linux on amd64 or arm64, this is %s/%s",
	verbs.ErrNotSupported, runtime.GOOS, runtime.GOARCH)

func (softDriver) Name() string { return "soft" }

func (softDriver) Devices() ([]verbs.Device, error) { return nil, errPlatform }

func (softDriver) Route(string, netip.Addr) (driver.Route, error) { return driver.Route{}, errPlatform }

func (softDriver) CreateID(string, driver.CMSink) (driver.CMID, error) { return nil, errPlatform }
