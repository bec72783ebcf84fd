//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// siwBell tells the kernel's siw that the send queue of a QP has requests.
//
// siw's library does so only if the request before the new ones has been taken; else it believes
// that the kernel is at work and will find them. It writes the new request and reads that mark
// without a barrier between the two, and a processor may do the second first: then the kernel,
// which has cleared the mark and found nothing, has stopped, and nobody tells it. Each later
// request finds the one before it untaken, so the queue fills up and stays full. The kernel's own
// look is under its lock, so telling it behind each post is enough, and telling it twice does no
// harm.
type siwBell struct {
	fd      int
	command postSendCommand
	answer  uint32 // of the kernel, struct ib_uverbs_post_send_resp
}

// postSendCommand is struct ib_uverbs_cmd_hdr and struct ib_uverbs_post_send of
// rdma/ib_user_verbs.h, with no request.
type postSendCommand struct {
	command  uint32
	inWords  uint16
	outWords uint16
	response uint64
	qpHandle uint32
	wrCount  uint32
	sgeCount uint32
	wqeSize  uint32
}

const (
	cmdPostSend = 28  // IB_USER_VERBS_CMD_POST_SEND
	sendWRSize  = 128 // of struct ibv_send_wr, as the library says it; the kernel's is smaller
)

func newSIWBell(q *qp) *siwBell {
	b := &siwBell{fd: int(at[cContext](q.ctx.handle).cmdFD)}
	b.command = postSendCommand{
		command: cmdPostSend, inWords: uint16(unsafe.Sizeof(b.command) / 4), outWords: uint16(unsafe.Sizeof(b.answer) / 4),
		response: uint64(uintptr(unsafe.Pointer(&b.answer))), qpHandle: q.c.handle, wqeSize: sendWRSize,
	}
	return b
}

// ring is called with the queue's lock held. A QP that has failed refuses, and flushes.
func (b *siwBell) ring() {
	raw := (*[unsafe.Sizeof(postSendCommand{})]byte)(unsafe.Pointer(&b.command))
	_, _ = unix.Write(b.fd, raw[:])
}
