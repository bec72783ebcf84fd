//go:build !linux || !(amd64 || arm64)

package soft

import (
	"fmt"
	"net/netip"
	"runtime"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

func init() { verbs.Register(driver{}) }

// driver stands for the driver where there is no software device on this system.
type driver struct{}

var errPlatform = fmt.Errorf("%w: the software device needs linux on amd64 or arm64, this is %s/%s",
	verbs.ErrNotSupported, runtime.GOOS, runtime.GOARCH)

func (driver) Name() string { return "soft" }

func (driver) Devices() ([]verbs.Device, error) { return nil, errPlatform }

func (driver) Route(string, netip.Addr) (verbs.Route, error) { return verbs.Route{}, errPlatform }

func (driver) CreateID(string, verbs.CMSink) (verbs.CMID, error) { return nil, errPlatform }
