package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// SMC-R version 1 asks for GIDs that soft-RoCE does not have; version 2 wants the two ends to
// share an enterprise ID. Without one SMC falls back to TCP and says nothing.
const enterpriseID = "RDMANET"

// What is said over generic netlink (linux/genetlink.h, linux/smc.h).
const (
	netlinkGeneric     = 16
	genlController     = 16
	ctrlGetFamily      = 3
	ctrlAttrFamilyID   = 1
	ctrlAttrFamilyName = 2
	smcFamilyName      = "SMC_GEN_NETLINK"
	smcAddUEID         = 10
	smcAttrUEID        = 1
	maxUEID            = 32
)

// enableSMC gives the kernel's SMC an enterprise ID.
func enableSMC() error {
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, netlinkGeneric)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer syscall.Close(fd)
	if err := syscall.Bind(fd, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	family, err := smcNetlinkFamily(fd)
	if err != nil {
		return fmt.Errorf("the kernel's SMC does not answer, is its module loaded: %w", err)
	}
	id := fmt.Sprintf("%-*s", maxUEID, enterpriseID)
	_, err = askNetlink(fd, family, smcAddUEID, netlinkAttr(smcAttrUEID, append([]byte(id), 0)))
	if err != nil && !errors.Is(err, syscall.EEXIST) {
		return fmt.Errorf("SMC takes no enterprise ID: %w", err)
	}
	return nil
}

// smcNetlinkFamily is the number under which SMC is spoken to.
func smcNetlinkFamily(fd int) (uint16, error) {
	reply, err := askNetlink(fd, genlController, ctrlGetFamily, netlinkAttr(ctrlAttrFamilyName, append([]byte(smcFamilyName), 0)))
	if err != nil {
		return 0, err
	}
	for len(reply) >= 4 {
		size, kind := int(binary.NativeEndian.Uint16(reply)), binary.NativeEndian.Uint16(reply[2:])
		if size < 4 || size > len(reply) {
			break
		}
		if kind == ctrlAttrFamilyID && size >= 6 {
			return binary.NativeEndian.Uint16(reply[4:]), nil
		}
		reply = reply[min((size+3)&^3, len(reply)):]
	}
	return 0, syscall.ENOENT
}

// netlinkAttr is an attribute, padded to four bytes.
func netlinkAttr(kind uint16, data []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(data)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), data...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// askNetlink sends a command of a family and returns the attributes of its answer, if it
// has any: there is an acknowledgement in any case.
func askNetlink(fd int, family uint16, command byte, attrs []byte) (answer []byte, err error) {
	const genericHeader = 4
	msg := make([]byte, 0, syscall.NLMSG_HDRLEN+genericHeader+len(attrs))
	msg = binary.NativeEndian.AppendUint32(msg, uint32(cap(msg)))
	msg = binary.NativeEndian.AppendUint16(msg, family)
	msg = binary.NativeEndian.AppendUint16(msg, syscall.NLM_F_REQUEST|syscall.NLM_F_ACK)
	msg = append(msg, make([]byte, 8)...) // sequence number and port
	msg = append(append(msg, command, 1, 0, 0), attrs...)
	if err := syscall.Sendto(fd, msg, 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return nil, os.NewSyscallError("sendto", err)
	}
	for {
		buf := make([]byte, 1<<16)
		n, _, err := syscall.Recvfrom(fd, buf, 0)
		if err != nil {
			return nil, os.NewSyscallError("recvfrom", err)
		}
		replies, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return nil, err
		}
		for _, r := range replies {
			if r.Header.Type != syscall.NLMSG_ERROR {
				answer = r.Data[min(genericHeader, len(r.Data)):]
				continue
			}
			if len(r.Data) < 4 {
				return nil, syscall.EPROTO
			}
			if errno := int32(binary.NativeEndian.Uint32(r.Data)); errno != 0 {
				return nil, syscall.Errno(-errno)
			}
			return answer, nil
		}
	}
}
