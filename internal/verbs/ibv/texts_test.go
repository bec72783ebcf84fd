//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// failingCall is a C function that returns result and leaves errno.
func failingCall(t *testing.T, result uintptr, errno syscall.Errno) uintptr {
	location := libc(t, "__errno_location")
	return purego.NewCallback(func() uintptr {
		*at[int32](call(location)) = int32(errno)
		return result
	})
}

func succeedingCall() uintptr { return purego.NewCallback(func() uintptr { return 0 }) }

// TestErrorTexts: what docs/TROUBLESHOOTING.md says of cards is said where a library fails so.
func TestErrorTexts(t *testing.T) {
	const failed = ^uintptr(0)
	lib := fakeVerbs(t)
	loopback := netip.MustParseAddr("127.0.0.1")
	id := &cmID{remote: netip.MustParseAddrPort("192.0.2.1:7")}

	noModule := *lib
	noModule.getDeviceList = failingCall(t, 0, syscall.ENOSYS)
	noCard := *lib
	list := cMemory[uintptr](t, 1)
	noCard.getDeviceList = purego.NewCallback(func(n *int32) uintptr { *n = 0; return addressOf(&list[0]) })
	noCard.freeDeviceList = succeedingCall()
	noObjects := *lib
	noObjects.getDeviceList = failingCall(t, 0, syscall.EAGAIN)
	denied := *lib
	denied.getDeviceList = failingCall(t, 0, syscall.EACCES)

	noOwner := newCMChannel(lib, &librdmacm{createID: failingCall(t, failed, syscall.ENODEV)})
	owner := &cMemory[cCMID](t, 1)[0]
	owner.verbs = 1
	ofAnother := newCMChannel(lib, &librdmacm{
		createID:  purego.NewCallback(func(_ uintptr, handle *uintptr) uintptr { *handle = addressOf(owner); return 0 }),
		bindAddr:  succeedingCall(),
		destroyID: succeedingCall(),
	})
	ofAnother.contexts[1] = fakeContext(t, lib, verbs.TransportRoCE)

	for text, err := range map[string]error{
		"there is no RDMA card, or the kernel module ib_uverbs is not loaded": of((&device{lib: &noModule, name: "mlx5_0"}).Open()),
		`no card is called "mlx5_0" (rdma link lists what there is)`:          of((&device{lib: &noCard, name: "mlx5_0"}).Open()),
		"(the process needs read and write access to /dev/infiniband)":        of((&device{lib: &denied, name: "mlx5_0"}).Open()),
		"(the device has no more, or the control group: see its rdma.max)":    of((&device{lib: &noObjects, name: "mlx5_0"}).Open()),
		"it is too old":                                                        load("libibverbs.so.1", "libibverbs1", []symbol{{"no_such_function", new(uintptr), false}}),
		"no RDMA device has a loopback address":                                new(cmID).BindAddr(netip.AddrPortFrom(loopback, 7)),
		"reached from 127.0.0.1, which belongs to no RDMA device":              of(noOwner.route("", loopback)),
		"reached from 127.0.0.1 on device none0, not on mlx5_0":                of(ofAnother.route("mlx5_0", loopback)),
		"no RDMA device leads there: ":                                         id.cause(&cmEvent{typ: driver.CMAddrError, status: -int32(syscall.ENODEV)}),
		"the host did not answer":                                              id.cause(&cmEvent{typ: driver.CMUnreachable, status: -int32(syscall.ETIMEDOUT)}),
		"the listener gave the connection up before its answer was read here":  id.cause(&cmEvent{typ: driver.CMConnectError, status: -int32(syscall.EINVAL)}),
		"(is the kernel module rdma_ucm loaded, and is there an RDMA device?)": newCMChannel(lib, &librdmacm{createEventChannel: failingCall(t, 0, syscall.ENOENT)}).open(),
	} {
		require.ErrorContains(t, err, text)
	}
}

// of drops what a call returns beside its error.
func of[T any](_ T, err error) error { return err }

// TestLoopbackNeedsNoLibrary: that no card has a loopback address is known without the libraries, which
// take long to load.
func TestLoopbackNeedsNoLibrary(t *testing.T) {
	cmLoader, verbsLoader := loadCM, loadVerbs
	defer func() { loadCM, loadVerbs = cmLoader, verbsLoader }()
	errLoaded := errors.New("a library was loaded")
	loadCM = func() (*librdmacm, error) { return nil, errLoaded }
	loadVerbs = func() (*libibverbs, error) { return nil, errLoaded }
	for _, dst := range []string{"127.0.0.1", "127.9.9.9", "::1"} {
		_, err := ibvDriver{}.Route("", netip.MustParseAddr(dst))
		require.ErrorIs(t, err, verbs.ErrNoRoute)
		require.NotErrorIs(t, err, errLoaded)
	}
	_, err := ibvDriver{}.Route("mlx5_0", netip.MustParseAddr("127.0.0.1"))
	require.ErrorIs(t, err, errLoaded, "a device that is named is looked for")
}
