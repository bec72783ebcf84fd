//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"fmt"
	"math/bits"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// limits are what a device never changes, asked for once.
type limits struct {
	attr verbs.DeviceAttr // without MaxInlineData
	// sevenIsForever: seven transport retries never end, as otherwise only RNR
	// retries do. soft-RoCE does so, against IBA 9.9.2.1.1.
	sevenIsForever bool
	// withInv are the flags of a completion that say that a key was invalidated. soft-RoCE
	// gives the kernel's IB_WC_WITH_INVALIDATE to applications, where libibverbs has another.
	withInv uint32
}

// softRoCEVendor is the vendor id that rdma_rxe gives its devices.
const softRoCEVendor = 0xffffff

// finiteRetries is a transport retry count with which a dead peer is noticed.
func (l *limits) finiteRetries(n uint8) uint8 {
	if n == 7 && l.sevenIsForever {
		return 6
	}
	return n
}

func (c *devContext) queryLimits() (limits, error) {
	var a cDeviceAttr
	if err := returned("ibv_query_device", callInt(c.lib.queryDevice, c.handle, uintptr(unsafe.Pointer(&a)))); err != nil {
		return limits{}, err
	}
	l := limits{attr: verbs.DeviceAttr{
		FWVer:           goString(a.fwVer[:]),
		NodeGUID:        bits.ReverseBytes64(a.nodeGUID),
		VendorID:        a.vendorID,
		VendorPartID:    a.vendorPartID,
		HWVer:           a.hwVer,
		MaxMRSize:       a.maxMRSize,
		MaxQP:           int(a.maxQP),
		MaxQPWR:         int(a.maxQPWR),
		MaxSGE:          int(a.maxSGE),
		MaxSGERD:        int(a.maxSGE),
		MaxCQ:           int(a.maxCQ),
		MaxCQE:          int(a.maxCQE),
		MaxMR:           int(a.maxMR),
		MaxPD:           int(a.maxPD),
		MaxQPRdAtom:     int(a.maxQPRdAtom),
		MaxQPInitRdAtom: int(a.maxQPInitRdAtom),
		MaxSRQ:          int(a.maxSRQ),
		MaxSRQWR:        int(a.maxSRQWR),
		MaxSRQSGE:       int(a.maxSRQSGE),
		MaxAH:           int(a.maxAH),
		MaxMW:           int(a.maxMW),
		PhysPortCnt:     int(a.physPortCnt),
	}}
	l.withInv = wcWithInv
	if a.vendorID == softRoCEVendor && c.dev.transport == verbs.TransportRoCE {
		l.sevenIsForever = true
		l.withInv |= wcKernelWithInv
	}
	caps := &l.attr.Caps
	if c.dev.transport != verbs.TransportIWARP {
		*caps |= verbs.CapWriteImm
	}
	if t := c.dev.transport; t == verbs.TransportIB || t == verbs.TransportRoCE {
		*caps |= verbs.CapUC | verbs.CapUD
	}
	if a.atomicCap != atomicNone {
		*caps |= verbs.CapAtomics
	}
	if a.maxSRQ > 0 {
		*caps |= verbs.CapSRQ
	}
	if a.deviceCapFlags&deviceMemWindow2B != 0 && c.ops().allocMW != 0 {
		*caps |= verbs.CapMemWindow
	}
	if c.dev.transport == verbs.TransportIWARP && a.maxSGERd > 0 {
		l.attr.MaxSGERD = int(a.maxSGERd)
	}
	// siw's library posts no LOCAL_INV, and says of no receive that a key was invalidated.
	if a.deviceCapFlags&deviceMemMgtExt != 0 && a.vendorID != softIWARPVendor {
		*caps |= verbs.CapSendInv
	}
	if c.deviceCapFlagsEx()&deviceAtomicWrite != 0 && c.lib.qpToQPEx != 0 && c.extended(unsafe.Offsetof(cVerbsContextTail{}.createQPEx)) != 0 {
		*caps |= verbs.CapAtomicWrite
	}
	return l, nil
}

// extended returns a function of the context's verbs_context, 0 if the library's
// is too short to have it (verbs_get_ctx_op).
func (c *devContext) extended(offset uintptr) uintptr {
	if at[cContext](c.handle).abiCompat != abiExtended {
		return 0
	}
	tail := c.handle - unsafe.Sizeof(cVerbsContextTail{})
	need := unsafe.Sizeof(cContext{}) + unsafe.Sizeof(cVerbsContextTail{}) - offset
	if at[cVerbsContextTail](tail).sz < need {
		return 0
	}
	return *at[uintptr](tail + offset)
}

// deviceCapFlagsEx asks ibv_query_device_ex, which old libraries and some
// providers lack.
func (c *devContext) deviceCapFlagsEx() uint64 {
	fn := c.extended(unsafe.Offsetof(cVerbsContextTail{}.queryDeviceEx))
	if fn == 0 {
		return 0
	}
	var a cDeviceAttrEx
	if callInt(fn, c.handle, 0, uintptr(unsafe.Pointer(&a)), unsafe.Sizeof(a)) != 0 {
		return 0
	}
	return a.deviceCapFlagsEx
}

func (c *devContext) QueryDevice() (verbs.DeviceAttr, error) {
	if err := c.users.Hold(); err != nil {
		return verbs.DeviceAttr{}, err
	}
	defer c.users.Release()
	attr := c.limits.attr
	var err error
	attr.MaxInlineData, err = c.maxInlineData()
	return attr, err
}

func (c *devContext) QueryPort(port uint8) (verbs.PortAttr, error) {
	if err := c.checkPort(port); err != nil {
		return verbs.PortAttr{}, err
	}
	if err := c.users.Hold(); err != nil {
		return verbs.PortAttr{}, err
	}
	defer c.users.Release()
	// The exported function fills all but what was added to the struct last.
	var a cPortAttr
	if err := returned("ibv_query_port", c.changes(c.lib.queryPort, c.handle, uintptr(port), uintptr(unsafe.Pointer(&a)))); err != nil {
		return verbs.PortAttr{}, err
	}
	return verbs.PortAttr{
		State:      verbs.PortState(a.state),
		MaxMTU:     verbs.MTU(a.maxMTU),
		ActiveMTU:  verbs.MTU(a.activeMTU),
		GIDTblLen:  int(a.gidTblLen),
		MaxMsgSize: a.maxMsgSz,
		LID:        a.lid,
		SMLID:      a.smLID,
		LinkLayer:  verbs.LinkLayer(a.linkLayer),
	}, nil
}

func (c *devContext) checkPort(port uint8) error {
	if n := c.limits.attr.PhysPortCnt; port < 1 || int(port) > n {
		return fmt.Errorf("%w: port %d of a device with %d", verbs.ErrInvalid, port, n)
	}
	return nil
}

func (c *devContext) QueryGID(port uint8, index int) (verbs.GIDEntry, error) {
	attr, err := c.QueryPort(port)
	if err != nil {
		return verbs.GIDEntry{}, err
	}
	if index < 0 || index >= attr.GIDTblLen {
		return verbs.GIDEntry{}, fmt.Errorf("%w: index %d of a GID table of %d", verbs.ErrInvalid, index, attr.GIDTblLen)
	}
	e := verbs.GIDEntry{Index: index, Port: port}
	if c.lib.queryGIDEx == 0 {
		return e, c.gidFromSysfs(&e)
	}
	if err := c.users.Hold(); err != nil {
		return verbs.GIDEntry{}, err
	}
	defer c.users.Release()
	var g cGIDEntry
	r := c.changes(c.lib.queryGIDEx, c.handle, uintptr(port), uintptr(index), uintptr(unsafe.Pointer(&g)), 0, unsafe.Sizeof(g))
	switch syscall.Errno(r) {
	case 0:
	case syscall.ENODATA:
		return e, nil // an empty entry
	case syscall.EOPNOTSUPP, syscall.EPROTONOSUPPORT:
		return e, c.gidFromSysfs(&e) // an old kernel
	default:
		return verbs.GIDEntry{}, returned("ibv_query_gid_ex", r)
	}
	e.GID = g.gid
	e.Type = gidType(g.gidType)
	e.IfIndex = int(g.ndevIfIndex)
	if !e.GID.IsZero() && e.IfIndex != 0 {
		e.NetDev = c.gidAttr(&e, "ndevs")
	}
	return e, nil
}

func gidType(t uint32) verbs.GIDType {
	switch t {
	case gidTypeRoCEv1:
		return verbs.GIDTypeRoCEv1
	case gidTypeRoCEv2:
		return verbs.GIDTypeRoCEv2
	}
	return verbs.GIDTypeIB
}

// gidFromSysfs fills an entry from what the kernel tells in files, which are
// missing or unreadable for an empty entry.
func (c *devContext) gidFromSysfs(e *verbs.GIDEntry) error {
	b, err := os.ReadFile(filepath.Join(c.portDir(e.Port), "gids", strconv.Itoa(e.Index)))
	if err != nil {
		return fmt.Errorf("GID %d of port %d: %w", e.Index, e.Port, err)
	}
	ip := net.ParseIP(strings.TrimSpace(string(b)))
	if ip == nil {
		return fmt.Errorf("GID %d of port %d is %q: %w", e.Index, e.Port, b, verbs.ErrInvalid)
	}
	copy(e.GID[:], ip.To16())
	if e.GID.IsZero() {
		return nil
	}
	e.Type = parseGIDType(c.gidAttr(e, "types"), c.dev.transport)
	e.NetDev = c.gidAttr(e, "ndevs")
	if e.NetDev != "" {
		if nic, err := net.InterfaceByName(e.NetDev); err == nil {
			e.IfIndex = nic.Index
		}
	}
	return nil
}

// parseGIDType reads the kernel's names, where RoCE v1 and InfiniBand share one.
func parseGIDType(s string, transport verbs.Transport) verbs.GIDType {
	switch {
	case s == "RoCE v2":
		return verbs.GIDTypeRoCEv2
	case s == "IB/RoCE v1" && transport == verbs.TransportRoCE:
		return verbs.GIDTypeRoCEv1
	}
	return verbs.GIDTypeIB
}

// gidAttr reads an attribute of a GID, "" if there is none.
func (c *devContext) gidAttr(e *verbs.GIDEntry, attr string) string {
	b, err := os.ReadFile(filepath.Join(c.portDir(e.Port), "gid_attrs", attr, strconv.Itoa(e.Index)))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (c *devContext) portDir(port uint8) string {
	return filepath.Join(sysfs, c.dev.name, "ports", strconv.Itoa(int(port)))
}
