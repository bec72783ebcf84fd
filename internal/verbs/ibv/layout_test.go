//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// fact is a size, an offset or a constant of ours and the C expression for it.
type fact struct {
	c    string
	ours uint64
}

func size(c string, ours uintptr) fact { return fact{"sizeof(" + c + ")", uint64(ours)} }

// offset is a field's offset; with its size if the width of a C type matters.
func offset(c, field string, ours uintptr) fact {
	return fact{fmt.Sprintf("offsetof(%s, %s)", c, field), uint64(ours)}
}

func width(c, field string, ours uintptr) fact {
	return fact{fmt.Sprintf("sizeof(((%s *)0)->%s)", c, field), uint64(ours)}
}

func value[T ~int | ~uint8 | ~uint16 | ~uint32 | ~uint64](c string, ours T) fact {
	return fact{c, uint64(ours)}
}

// member checks a field's offset and width at once.
func member(c, field string, off, size uintptr) []fact {
	return []fact{offset(c, field, off), width(c, field, size)}
}

// TestLayout compiles a program against the installed headers and compares what
// it prints with layout.go.
func TestLayout(t *testing.T) {
	const hint = "the C headers of rdma-core cannot be used: apt-get install gcc libc6-dev libibverbs-dev librdmacm-dev"
	facts := layoutFacts()
	got, err := askC(t, facts)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s\n%v", hint, err)
		}
		t.Skipf("%s\n%v", hint, err)
	}
	require.Len(t, got, len(facts))
	for i, f := range facts {
		assert.Equal(t, fmt.Sprint(f.ours), got[i], f.c)
	}
}

// askC evaluates the facts' expressions in C.
func askC(t *testing.T, facts []fact) ([]string, error) {
	t.Helper()
	var src bytes.Buffer
	src.WriteString(`#include <stddef.h>
#include <stdio.h>
#include <pthread.h>
#include <netinet/in.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
int main(void) {
`)
	for _, f := range facts {
		fmt.Fprintf(&src, "\tprintf(\"%%llu\\n\", (unsigned long long)(%s));\n", f.c)
	}
	src.WriteString("\treturn 0;\n}\n")
	dir := t.TempDir()
	file, bin := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout")
	require.NoError(t, os.WriteFile(file, src.Bytes(), 0o600))
	if out, err := exec.Command("cc", "-o", bin, file).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cc: %w\n%s", err, out)
	}
	out, err := exec.Command(bin).Output()
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(out)), nil
}

// toContext is how far before its context a field of a verbs_context lies.
func toContext(field string, ours uintptr) fact {
	c := fmt.Sprintf("offsetof(struct verbs_context, context) - offsetof(struct verbs_context, %s)", field)
	return fact{c, uint64(unsafe.Sizeof(cVerbsContextTail{}) - ours)}
}

func layoutFacts() []fact {
	var all []fact
	add := func(f ...fact) { all = append(all, f...) }
	for _, facts := range [][]fact{deviceFacts(), objectFacts(), qpFacts(), requestFacts(), cmFacts(), constantFacts()} {
		add(facts...)
	}
	return all
}

func deviceFacts() (all []fact) {
	add := func(f ...fact) { all = append(all, f...) }
	var d cDevice
	add(member("struct ibv_device", "node_type", unsafe.Offsetof(d.nodeType), unsafe.Sizeof(d.nodeType))...)
	add(member("struct ibv_device", "transport_type", unsafe.Offsetof(d.transportType), unsafe.Sizeof(d.transportType))...)
	add(member("struct ibv_device", "name", unsafe.Offsetof(d.name), unsafe.Sizeof(d.name))...)

	var o cContextOps
	add(size("struct ibv_context_ops", unsafe.Sizeof(o)),
		offset("struct ibv_context_ops", "alloc_mw", unsafe.Offsetof(o.allocMW)), offset("struct ibv_context_ops", "dealloc_mw", unsafe.Offsetof(o.deallocMW)),
		offset("struct ibv_context_ops", "poll_cq", unsafe.Offsetof(o.pollCQ)),
		offset("struct ibv_context_ops", "req_notify_cq", unsafe.Offsetof(o.reqNotifyCQ)),
		offset("struct ibv_context_ops", "post_srq_recv", unsafe.Offsetof(o.postSRQRecv)),
		offset("struct ibv_context_ops", "post_send", unsafe.Offsetof(o.postSend)),
		offset("struct ibv_context_ops", "post_recv", unsafe.Offsetof(o.postRecv)))
	var c cContext
	add(size("struct ibv_context", unsafe.Sizeof(c)), size("pthread_mutex_t", mutexSize),
		offset("struct ibv_context", "device", unsafe.Offsetof(c.device)),
		offset("struct ibv_context", "ops", unsafe.Offsetof(c.ops)),
		offset("struct ibv_context", "abi_compat", unsafe.Offsetof(c.abiCompat)))
	add(member("struct ibv_context", "cmd_fd", unsafe.Offsetof(c.cmdFD), unsafe.Sizeof(c.cmdFD))...)
	add(member("struct ibv_context", "async_fd", unsafe.Offsetof(c.asyncFD), unsafe.Sizeof(c.asyncFD))...)
	add(member("struct ibv_context", "num_comp_vectors", unsafe.Offsetof(c.numCompVectors), unsafe.Sizeof(c.numCompVectors))...)
	add(value("__VERBS_ABI_IS_EXTENDED", uint64(abiExtended)))
	var v cVerbsContextTail
	add(toContext("query_device_ex", unsafe.Offsetof(v.queryDeviceEx)),
		toContext("create_qp_ex", unsafe.Offsetof(v.createQPEx)),
		toContext("sz", unsafe.Offsetof(v.sz)),
		fact{"sizeof(struct verbs_context) - offsetof(struct verbs_context, context)", uint64(unsafe.Sizeof(c))})

	var a cDeviceAttr
	s := "struct ibv_device_attr"
	add(size(s, unsafe.Sizeof(a)))
	add(member(s, "fw_ver", unsafe.Offsetof(a.fwVer), unsafe.Sizeof(a.fwVer))...)
	add(member(s, "node_guid", unsafe.Offsetof(a.nodeGUID), unsafe.Sizeof(a.nodeGUID))...)
	add(member(s, "max_mr_size", unsafe.Offsetof(a.maxMRSize), unsafe.Sizeof(a.maxMRSize))...)
	add(member(s, "device_cap_flags", unsafe.Offsetof(a.deviceCapFlags), unsafe.Sizeof(a.deviceCapFlags))...)
	for field, off := range map[string]uintptr{
		"vendor_id": unsafe.Offsetof(a.vendorID), "vendor_part_id": unsafe.Offsetof(a.vendorPartID), "hw_ver": unsafe.Offsetof(a.hwVer),
		"max_qp": unsafe.Offsetof(a.maxQP), "max_qp_wr": unsafe.Offsetof(a.maxQPWR), "max_sge": unsafe.Offsetof(a.maxSGE),
		"max_cq": unsafe.Offsetof(a.maxCQ), "max_cqe": unsafe.Offsetof(a.maxCQE), "max_mr": unsafe.Offsetof(a.maxMR), "max_pd": unsafe.Offsetof(a.maxPD),
		"max_qp_rd_atom": unsafe.Offsetof(a.maxQPRdAtom), "max_qp_init_rd_atom": unsafe.Offsetof(a.maxQPInitRdAtom),
		"atomic_cap": unsafe.Offsetof(a.atomicCap), "max_ah": unsafe.Offsetof(a.maxAH), "max_mw": unsafe.Offsetof(a.maxMW),
		"max_srq": unsafe.Offsetof(a.maxSRQ), "max_srq_wr": unsafe.Offsetof(a.maxSRQWR), "max_srq_sge": unsafe.Offsetof(a.maxSRQSGE),
	} {
		add(member(s, field, off, 4)...)
	}
	add(member(s, "phys_port_cnt", unsafe.Offsetof(a.physPortCnt), 1)...)

	var x cDeviceAttrEx
	add(size("struct ibv_device_attr_ex", unsafe.Sizeof(x)),
		offset("struct ibv_device_attr_ex", "orig_attr", unsafe.Offsetof(x.attr)))
	add(member("struct ibv_device_attr_ex", "comp_mask", unsafe.Offsetof(x.compMask), unsafe.Sizeof(x.compMask))...)
	add(member("struct ibv_device_attr_ex", "device_cap_flags_ex", unsafe.Offsetof(x.deviceCapFlagsEx), unsafe.Sizeof(x.deviceCapFlagsEx))...)

	var p cPortAttr
	s = "struct ibv_port_attr"
	add(size(s, unsafe.Sizeof(p)))
	add(member(s, "state", unsafe.Offsetof(p.state), 4)...)
	add(member(s, "max_mtu", unsafe.Offsetof(p.maxMTU), 4)...)
	add(member(s, "active_mtu", unsafe.Offsetof(p.activeMTU), 4)...)
	add(member(s, "gid_tbl_len", unsafe.Offsetof(p.gidTblLen), 4)...)
	add(member(s, "max_msg_sz", unsafe.Offsetof(p.maxMsgSz), 4)...)
	add(member(s, "lid", unsafe.Offsetof(p.lid), 2)...)
	add(member(s, "sm_lid", unsafe.Offsetof(p.smLID), 2)...)
	add(member(s, "link_layer", unsafe.Offsetof(p.linkLayer), 1)...)

	var g cGIDEntry
	s = "struct ibv_gid_entry"
	add(size(s, unsafe.Sizeof(g)))
	add(member(s, "gid", unsafe.Offsetof(g.gid), 16)...)
	add(member(s, "gid_index", unsafe.Offsetof(g.gidIndex), 4)...)
	add(member(s, "port_num", unsafe.Offsetof(g.portNum), 4)...)
	add(member(s, "gid_type", unsafe.Offsetof(g.gidType), 4)...)
	add(member(s, "ndev_ifindex", unsafe.Offsetof(g.ndevIfIndex), 4)...)

	var e cAsyncEvent
	s = "struct ibv_async_event"
	add(size(s, unsafe.Sizeof(e)), offset(s, "element.port_num", unsafe.Offsetof(e.element)), width(s, "element.port_num", 4))
	add(member(s, "element", unsafe.Offsetof(e.element), unsafe.Sizeof(e.element))...)
	add(member(s, "event_type", unsafe.Offsetof(e.eventType), unsafe.Sizeof(e.eventType))...)
	return all
}

func objectFacts() (all []fact) {
	add := func(f ...fact) { all = append(all, f...) }
	var mr cMR
	add(size("struct ibv_mr", unsafe.Sizeof(mr)))
	add(member("struct ibv_mr", "length", unsafe.Offsetof(mr.length), 8)...)
	add(member("struct ibv_mr", "lkey", unsafe.Offsetof(mr.lkey), 4)...)
	add(member("struct ibv_mr", "rkey", unsafe.Offsetof(mr.rkey), 4)...)
	var ch cCompChannel
	add(member("struct ibv_comp_channel", "fd", unsafe.Offsetof(ch.fd), unsafe.Sizeof(ch.fd))...)
	var cq cCQ
	add(member("struct ibv_cq", "cqe", unsafe.Offsetof(cq.cqe), unsafe.Sizeof(cq.cqe))...)

	var sa cSRQAttr
	add(size("struct ibv_srq_attr", unsafe.Sizeof(sa)))
	add(member("struct ibv_srq_attr", "max_wr", unsafe.Offsetof(sa.maxWR), 4)...)
	add(member("struct ibv_srq_attr", "max_sge", unsafe.Offsetof(sa.maxSGE), 4)...)
	add(member("struct ibv_srq_attr", "srq_limit", unsafe.Offsetof(sa.limit), 4)...)
	var si cSRQInitAttr
	add(size("struct ibv_srq_init_attr", unsafe.Sizeof(si)),
		offset("struct ibv_srq_init_attr", "srq_context", unsafe.Offsetof(si.srqContext)),
		offset("struct ibv_srq_init_attr", "attr", unsafe.Offsetof(si.attr)))

	var ah cAHAttr
	s := "struct ibv_ah_attr"
	add(size(s, unsafe.Sizeof(ah)), size("struct ibv_global_route", unsafe.Sizeof(ah.grh)))
	add(member("struct ibv_global_route", "dgid", unsafe.Offsetof(ah.grh.dgid), 16)...)
	add(member("struct ibv_global_route", "flow_label", unsafe.Offsetof(ah.grh.flowLabel), 4)...)
	add(member("struct ibv_global_route", "sgid_index", unsafe.Offsetof(ah.grh.sgidIndex), 1)...)
	add(member("struct ibv_global_route", "hop_limit", unsafe.Offsetof(ah.grh.hopLimit), 1)...)
	add(member("struct ibv_global_route", "traffic_class", unsafe.Offsetof(ah.grh.trafficClass), 1)...)
	add(offset(s, "grh", unsafe.Offsetof(ah.grh)))
	add(member(s, "dlid", unsafe.Offsetof(ah.dlid), 2)...)
	add(member(s, "sl", unsafe.Offsetof(ah.sl), 1)...)
	add(member(s, "is_global", unsafe.Offsetof(ah.isGlobal), 1)...)
	add(member(s, "port_num", unsafe.Offsetof(ah.portNum), 1)...)
	return all
}

func qpFacts() (all []fact) {
	add := func(f ...fact) { all = append(all, f...) }
	var c cQPCap
	add(size("struct ibv_qp_cap", unsafe.Sizeof(c)))
	for field, off := range map[string]uintptr{
		"max_send_wr": unsafe.Offsetof(c.maxSendWR), "max_recv_wr": unsafe.Offsetof(c.maxRecvWR),
		"max_send_sge": unsafe.Offsetof(c.maxSendSGE), "max_recv_sge": unsafe.Offsetof(c.maxRecvSGE),
		"max_inline_data": unsafe.Offsetof(c.maxInlineData),
	} {
		add(member("struct ibv_qp_cap", field, off, 4)...)
	}

	var i cQPInitAttr
	add(size("struct ibv_qp_init_attr", unsafe.Sizeof(i)))
	var x cQPInitAttrEx
	add(size("struct ibv_qp_init_attr_ex", unsafe.Sizeof(x)))
	s := "struct ibv_qp_init_attr"
	add(offset(s, "qp_context", unsafe.Offsetof(i.qpContext)), offset(s, "send_cq", unsafe.Offsetof(i.sendCQ)),
		offset(s, "recv_cq", unsafe.Offsetof(i.recvCQ)), offset(s, "srq", unsafe.Offsetof(i.srq)), offset(s, "cap", unsafe.Offsetof(i.cap)))
	add(member(s, "qp_type", unsafe.Offsetof(i.qpType), 4)...)
	add(member(s, "sq_sig_all", unsafe.Offsetof(i.sqSigAll), 4)...)
	s = "struct ibv_qp_init_attr_ex"
	add(offset(s, "qp_context", unsafe.Offsetof(x.qpContext)), offset(s, "send_cq", unsafe.Offsetof(x.sendCQ)),
		offset(s, "recv_cq", unsafe.Offsetof(x.recvCQ)), offset(s, "srq", unsafe.Offsetof(x.srq)), offset(s, "cap", unsafe.Offsetof(x.cap)))
	add(member(s, "qp_type", unsafe.Offsetof(x.qpType), 4)...)
	add(member(s, "sq_sig_all", unsafe.Offsetof(x.sqSigAll), 4)...)
	add(member("struct ibv_qp_init_attr_ex", "comp_mask", unsafe.Offsetof(x.compMask), 4)...)
	add(member("struct ibv_qp_init_attr_ex", "pd", unsafe.Offsetof(x.pd), 8)...)
	add(member("struct ibv_qp_init_attr_ex", "send_ops_flags", unsafe.Offsetof(x.sendOpsFlags), 8)...)

	var q cQP
	add(size("struct ibv_qp", qpSize))
	add(member("struct ibv_qp", "qp_num", unsafe.Offsetof(q.qpNum), 4)...)
	add(member("struct ibv_qp", "state", unsafe.Offsetof(q.state), 4)...)
	add(member("struct ibv_qp", "qp_type", unsafe.Offsetof(q.qpType), 4)...)
	var e cQPEx
	add(offset("struct ibv_qp_ex", "qp_base", 0), width("struct ibv_qp_ex", "qp_base", qpSize),
		size("struct ibv_qp_ex", unsafe.Sizeof(e)))
	add(member("struct ibv_qp_ex", "wr_id", unsafe.Offsetof(e.wrID), 8)...)
	add(member("struct ibv_qp_ex", "wr_flags", unsafe.Offsetof(e.wrFlags), 4)...)
	add(offset("struct ibv_qp_ex", "wr_start", unsafe.Offsetof(e.wrStart)),
		offset("struct ibv_qp_ex", "wr_complete", unsafe.Offsetof(e.wrComplete)),
		offset("struct ibv_qp_ex", "wr_abort", unsafe.Offsetof(e.wrAbort)),
		offset("struct ibv_qp_ex", "wr_atomic_write", unsafe.Offsetof(e.wrAtomicWrite)))

	var a cQPAttr
	s = "struct ibv_qp_attr"
	add(size(s, unsafe.Sizeof(a)))
	for field, off := range map[string]uintptr{
		"qp_state": unsafe.Offsetof(a.qpState), "path_mtu": unsafe.Offsetof(a.pathMTU), "qkey": unsafe.Offsetof(a.qkey),
		"rq_psn": unsafe.Offsetof(a.rqPSN), "sq_psn": unsafe.Offsetof(a.sqPSN), "dest_qp_num": unsafe.Offsetof(a.destQPNum),
		"qp_access_flags": unsafe.Offsetof(a.qpAccessFlags),
	} {
		add(member(s, field, off, 4)...)
	}
	add(offset(s, "cap", unsafe.Offsetof(a.cap)), offset(s, "ah_attr", unsafe.Offsetof(a.ah)), offset(s, "alt_ah_attr", unsafe.Offsetof(a.altAH)))
	add(member(s, "pkey_index", unsafe.Offsetof(a.pkeyIndex), 2)...)
	for field, off := range map[string]uintptr{
		"en_sqd_async_notify": unsafe.Offsetof(a.enSQDAsyncNotify), "max_rd_atomic": unsafe.Offsetof(a.maxRdAtomic),
		"max_dest_rd_atomic": unsafe.Offsetof(a.maxDestRdAtomic), "min_rnr_timer": unsafe.Offsetof(a.minRNRTimer),
		"port_num": unsafe.Offsetof(a.portNum), "timeout": unsafe.Offsetof(a.timeout),
		"retry_cnt": unsafe.Offsetof(a.retryCnt), "rnr_retry": unsafe.Offsetof(a.rnrRetry),
	} {
		add(member(s, field, off, 1)...)
	}
	return all
}

func requestFacts() (all []fact) {
	add := func(f ...fact) { all = append(all, f...) }
	var g cSGE
	add(size("struct ibv_sge", unsafe.Sizeof(g)))
	add(member("struct ibv_sge", "addr", unsafe.Offsetof(g.addr), 8)...)
	add(member("struct ibv_sge", "length", unsafe.Offsetof(g.length), 4)...)
	add(member("struct ibv_sge", "lkey", unsafe.Offsetof(g.lkey), 4)...)

	var w cSendWR
	s := "struct ibv_send_wr"
	add(size(s, unsafe.Sizeof(w)))
	add(member(s, "wr_id", unsafe.Offsetof(w.wrID), 8)...)
	add(offset(s, "next", unsafe.Offsetof(w.next)), offset(s, "sg_list", unsafe.Offsetof(w.sgList)))
	add(member(s, "num_sge", unsafe.Offsetof(w.numSGE), 4)...)
	add(member(s, "opcode", unsafe.Offsetof(w.opcode), 4)...)
	add(member(s, "send_flags", unsafe.Offsetof(w.flags), 4)...)
	add(member(s, "imm_data", unsafe.Offsetof(w.immData), 4)...)
	add(offset(s, "invalidate_rkey", unsafe.Offsetof(w.immData)))
	wr := unsafe.Offsetof(w.wr)
	add(member(s, "wr", wr, unsafe.Sizeof(w.wr))...)
	var r cRDMA
	add(member(s, "wr.rdma.remote_addr", wr+unsafe.Offsetof(r.remoteAddr), 8)...)
	add(member(s, "wr.rdma.rkey", wr+unsafe.Offsetof(r.rkey), 4)...)
	var a cAtomic
	add(member(s, "wr.atomic.remote_addr", wr+unsafe.Offsetof(a.remoteAddr), 8)...)
	add(member(s, "wr.atomic.compare_add", wr+unsafe.Offsetof(a.compareAdd), 8)...)
	add(member(s, "wr.atomic.swap", wr+unsafe.Offsetof(a.swap), 8)...)
	add(member(s, "wr.atomic.rkey", wr+unsafe.Offsetof(a.rkey), 4)...)
	var u cUD
	add(member(s, "wr.ud.ah", wr+unsafe.Offsetof(u.ah), 8)...)
	add(member(s, "wr.ud.remote_qpn", wr+unsafe.Offsetof(u.remoteQPN), 4)...)
	add(member(s, "wr.ud.remote_qkey", wr+unsafe.Offsetof(u.remoteQKey), 4)...)

	var b cBindMW
	bind := unsafe.Offsetof(w.bindMW)
	add(member(s, "bind_mw.mw", bind+unsafe.Offsetof(b.mw), 8)...)
	add(member(s, "bind_mw.rkey", bind+unsafe.Offsetof(b.rkey), 4)...)
	add(member(s, "bind_mw.bind_info.mr", bind+unsafe.Offsetof(b.mr), 8)...)
	add(member(s, "bind_mw.bind_info.addr", bind+unsafe.Offsetof(b.addr), 8)...)
	add(member(s, "bind_mw.bind_info.length", bind+unsafe.Offsetof(b.length), 8)...)
	add(member(s, "bind_mw.bind_info.mw_access_flags", bind+unsafe.Offsetof(b.access), 4)...)
	var win cMW
	add(member("struct ibv_mw", "rkey", unsafe.Offsetof(win.rkey), 4)...)
	add(member("struct ibv_mw", "type", unsafe.Offsetof(win.mwType), 4)...)

	var v cRecvWR
	s = "struct ibv_recv_wr"
	add(size(s, unsafe.Sizeof(v)))
	add(member(s, "wr_id", unsafe.Offsetof(v.wrID), 8)...)
	add(offset(s, "next", unsafe.Offsetof(v.next)), offset(s, "sg_list", unsafe.Offsetof(v.sgList)))
	add(member(s, "num_sge", unsafe.Offsetof(v.numSGE), 4)...)

	var c cWC
	s = "struct ibv_wc"
	add(size(s, unsafe.Sizeof(c)))
	add(member(s, "wr_id", unsafe.Offsetof(c.wrID), 8)...)
	for field, off := range map[string]uintptr{
		"status": unsafe.Offsetof(c.status), "opcode": unsafe.Offsetof(c.opcode), "vendor_err": unsafe.Offsetof(c.vendorErr),
		"byte_len": unsafe.Offsetof(c.byteLen), "imm_data": unsafe.Offsetof(c.immData), "invalidated_rkey": unsafe.Offsetof(c.immData),
		"qp_num": unsafe.Offsetof(c.qpNum), "src_qp": unsafe.Offsetof(c.srcQP), "wc_flags": unsafe.Offsetof(c.flags),
	} {
		add(member(s, field, off, 4)...)
	}
	return all
}

func cmFacts() (all []fact) {
	add := func(f ...fact) { all = append(all, f...) }
	var ch cEventChannel
	add(member("struct rdma_event_channel", "fd", unsafe.Offsetof(ch.fd), unsafe.Sizeof(ch.fd))...)
	var id cCMID
	s := "struct rdma_cm_id"
	add(offset(s, "verbs", unsafe.Offsetof(id.verbs)), offset(s, "channel", unsafe.Offsetof(id.channel)),
		offset(s, "context", unsafe.Offsetof(id.context)), offset(s, "qp", unsafe.Offsetof(id.qp)))
	add(member(s, "route.addr.src_storage", unsafe.Offsetof(id.srcAddr), unsafe.Sizeof(id.srcAddr))...)
	add(member(s, "route.addr.dst_storage", unsafe.Offsetof(id.dstAddr), unsafe.Sizeof(id.dstAddr))...)
	add(member(s, "ps", unsafe.Offsetof(id.ps), 4)...)
	add(member(s, "port_num", unsafe.Offsetof(id.portNum), 1)...)

	var p cConnParam
	s = "struct rdma_conn_param"
	add(size(s, unsafe.Sizeof(p)), offset(s, "private_data", unsafe.Offsetof(p.privateData)))
	for field, off := range map[string]uintptr{
		"private_data_len": unsafe.Offsetof(p.privateDataLen), "responder_resources": unsafe.Offsetof(p.responderResources),
		"initiator_depth": unsafe.Offsetof(p.initiatorDepth), "flow_control": unsafe.Offsetof(p.flowControl),
		"retry_count": unsafe.Offsetof(p.retryCount), "rnr_retry_count": unsafe.Offsetof(p.rnrRetryCount), "srq": unsafe.Offsetof(p.srq),
	} {
		add(member(s, field, off, 1)...)
	}
	add(member(s, "qp_num", unsafe.Offsetof(p.qpNum), 4)...)

	var e cCMEvent
	s = "struct rdma_cm_event"
	add(offset(s, "id", unsafe.Offsetof(e.id)), offset(s, "listen_id", unsafe.Offsetof(e.listenID)), offset(s, "param.conn", unsafe.Offsetof(e.conn)))
	add(member(s, "event", unsafe.Offsetof(e.event), 4)...)
	add(member(s, "status", unsafe.Offsetof(e.status), 4)...)

	var v4 cSockaddrIn
	s = "struct sockaddr_in"
	add(size(s, unsafe.Sizeof(v4)))
	add(member(s, "sin_family", unsafe.Offsetof(v4.family), 2)...)
	add(member(s, "sin_port", unsafe.Offsetof(v4.port), 2)...)
	add(member(s, "sin_addr", unsafe.Offsetof(v4.addr), 4)...)
	var v6 cSockaddrIn6
	s = "struct sockaddr_in6"
	add(size(s, unsafe.Sizeof(v6)))
	add(member(s, "sin6_family", unsafe.Offsetof(v6.family), 2)...)
	add(member(s, "sin6_port", unsafe.Offsetof(v6.port), 2)...)
	add(member(s, "sin6_flowinfo", unsafe.Offsetof(v6.flowInfo), 4)...)
	add(member(s, "sin6_addr", unsafe.Offsetof(v6.addr), 16)...)
	add(member(s, "sin6_scope_id", unsafe.Offsetof(v6.scopeID), 4)...)
	return all
}

// constantFacts has the constants of layout.go and those of package verbs that
// the driver hands on as they are.
func constantFacts() []fact {
	return []fact{
		value("IBV_NODE_CA", nodeCA),
		value("IBV_NODE_RNIC", nodeRNIC),
		value("IBV_ATOMIC_NONE", atomicNone),
		value("IBV_DEVICE_MEM_MGT_EXTENSIONS", deviceMemMgtExt),
		value("IBV_QP_INIT_ATTR_PD", qpInitAttrPD),
		value("IBV_QP_INIT_ATTR_SEND_OPS_FLAGS", qpInitAttrSendOps),
		value("IBV_QP_EX_WITH_RDMA_WRITE", qpExWithRDMAWrite),
		value("IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM", qpExWithRDMAWriteWithImm),
		value("IBV_QP_EX_WITH_SEND", qpExWithSend),
		value("IBV_QP_EX_WITH_SEND_WITH_IMM", qpExWithSendWithImm),
		value("IBV_QP_EX_WITH_RDMA_READ", qpExWithRDMARead),
		value("IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP", qpExWithAtomicCmpAndSwp),
		value("IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD", qpExWithAtomicFetchAndAdd),
		value("IBV_QP_EX_WITH_LOCAL_INV", qpExWithLocalInv),
		value("IBV_QP_EX_WITH_SEND_WITH_INV", qpExWithSendWithInv),
		value("IBV_QP_EX_WITH_ATOMIC_WRITE", qpExWithAtomicWrite), value("IBV_QP_EX_WITH_BIND_MW", qpExWithBindMW),
		value("IBV_SRQ_LIMIT", srqMaskLimit),
		value("IBV_QP_EN_SQD_ASYNC_NOTIFY", qpMaskEnSQDNotify),
		value("IBV_GID_TYPE_IB", gidTypeIB), value("IBV_GID_TYPE_ROCE_V1", gidTypeRoCEv1), value("IBV_GID_TYPE_ROCE_V2", gidTypeRoCEv2),
		value("RDMA_PS_TCP", rdmaPSTCP),
		value("RDMA_MAX_RESP_RES", rdmaMaxRespRes), value("RDMA_MAX_INIT_DEPTH", rdmaMaxInitDepth),
		value("RDMA_OPTION_ID", rdmaOptionID), value("RDMA_OPTION_ID_TOS", rdmaOptionTOS),
		value("RDMA_OPTION_ID_REUSEADDR", rdmaOptionReuseAddr), value("RDMA_OPTION_ID_AFONLY", rdmaOptionAFOnly),
		value("RDMA_OPTION_ID_ACK_TIMEOUT", rdmaOptionAckTimeout),
		value("AF_INET", addrFamilyINET), value("AF_INET6", addrFamilyINET6),

		value("IBV_WR_RDMA_WRITE", verbs.WRRDMAWrite), value("IBV_WR_RDMA_WRITE_WITH_IMM", verbs.WRRDMAWriteWithImm),
		value("IBV_WR_SEND", verbs.WRSend), value("IBV_WR_SEND_WITH_IMM", verbs.WRSendWithImm), value("IBV_WR_RDMA_READ", verbs.WRRDMARead),
		value("IBV_WR_ATOMIC_CMP_AND_SWP", verbs.WRAtomicCmpAndSwp), value("IBV_WR_ATOMIC_FETCH_AND_ADD", verbs.WRAtomicFetchAndAdd),
		value("IBV_WR_LOCAL_INV", verbs.WRLocalInv), value("IBV_WR_SEND_WITH_INV", wrSendWithInv),
		value("IBV_WR_BIND_MW", wrBindMW), value("IBV_WC_BIND_MW", wcBindMW), value("IBV_ACCESS_MW_BIND", verbs.AccessMWBind),
		value("IBV_MW_TYPE_2", mwType2), value("IBV_DEVICE_MEM_WINDOW_TYPE_2B", deviceMemWindow2B),

		value("IBV_WC_SEND", wcSend), value("IBV_WC_RDMA_WRITE", wcRDMAWrite), value("IBV_WC_RDMA_READ", wcRDMARead),
		value("IBV_WC_COMP_SWAP", wcCompSwap), value("IBV_WC_FETCH_ADD", wcFetchAdd), value("IBV_WC_LOCAL_INV", wcLocalInv),
		value("IBV_WC_ATOMIC_WRITE", wcAtomicWrite), value("IBV_WC_RECV", wcRecv), value("IBV_WC_RECV_RDMA_WITH_IMM", wcRecvRDMAWithImm),
		value("IBV_WC_GRH", wcGRH), value("IBV_WC_WITH_IMM", wcWithImm), value("IBV_WC_WITH_INV", wcWithInv),

		value("IBV_SEND_FENCE", verbs.SendFence), value("IBV_SEND_SIGNALED", verbs.SendSignaled),
		value("IBV_SEND_SOLICITED", verbs.SendSolicited), value("IBV_SEND_INLINE", verbs.SendInline),
		value("IBV_ACCESS_LOCAL_WRITE", verbs.AccessLocalWrite), value("IBV_ACCESS_REMOTE_WRITE", verbs.AccessRemoteWrite),
		value("IBV_ACCESS_REMOTE_READ", verbs.AccessRemoteRead), value("IBV_ACCESS_REMOTE_ATOMIC", verbs.AccessRemoteAtomic),

		value("IBV_QPT_RC", verbs.QPTypeRC), value("IBV_QPT_UC", verbs.QPTypeUC), value("IBV_QPT_UD", verbs.QPTypeUD),
		value("IBV_QPS_RESET", verbs.QPReset), value("IBV_QPS_INIT", verbs.QPInit), value("IBV_QPS_RTR", verbs.QPRTR),
		value("IBV_QPS_RTS", verbs.QPRTS), value("IBV_QPS_SQD", verbs.QPSQD), value("IBV_QPS_SQE", verbs.QPSQErr), value("IBV_QPS_ERR", verbs.QPErr),
		value("IBV_QP_STATE", verbs.QPMaskState), value("IBV_QP_ACCESS_FLAGS", verbs.QPMaskAccessFlags),
		value("IBV_QP_PKEY_INDEX", verbs.QPMaskPKeyIndex), value("IBV_QP_PORT", verbs.QPMaskPort), value("IBV_QP_QKEY", verbs.QPMaskQKey),
		value("IBV_QP_AV", verbs.QPMaskAV), value("IBV_QP_PATH_MTU", verbs.QPMaskPathMTU), value("IBV_QP_TIMEOUT", verbs.QPMaskTimeout),
		value("IBV_QP_RETRY_CNT", verbs.QPMaskRetryCnt), value("IBV_QP_RNR_RETRY", verbs.QPMaskRNRRetry), value("IBV_QP_RQ_PSN", verbs.QPMaskRQPSN),
		value("IBV_QP_MAX_QP_RD_ATOMIC", verbs.QPMaskMaxQPRdAtomic), value("IBV_QP_MIN_RNR_TIMER", verbs.QPMaskMinRNRTimer),
		value("IBV_QP_SQ_PSN", verbs.QPMaskSQPSN), value("IBV_QP_MAX_DEST_RD_ATOMIC", verbs.QPMaskMaxDestRdAtomic),
		value("IBV_QP_CAP", verbs.QPMaskCap), value("IBV_QP_DEST_QPN", verbs.QPMaskDestQPN),

		value("IBV_PORT_NOP", verbs.PortNop), value("IBV_PORT_ACTIVE", verbs.PortActive), value("IBV_PORT_ACTIVE_DEFER", verbs.PortActiveDefer),
		value("IBV_MTU_256", verbs.MTU256), value("IBV_MTU_4096", verbs.MTU4096),
		value("IBV_LINK_LAYER_UNSPECIFIED", verbs.LinkLayerUnspecified), value("IBV_LINK_LAYER_INFINIBAND", verbs.LinkLayerInfiniBand),
		value("IBV_LINK_LAYER_ETHERNET", verbs.LinkLayerEthernet),

		value("IBV_WC_SUCCESS", verbs.WCSuccess), value("IBV_WC_LOC_PROT_ERR", verbs.WCLocProtErr), value("IBV_WC_WR_FLUSH_ERR", verbs.WCWRFlushErr),
		value("IBV_WC_REM_ACCESS_ERR", verbs.WCRemAccessErr), value("IBV_WC_RNR_RETRY_EXC_ERR", verbs.WCRNRRetryExcErr),
		value("IBV_WC_GENERAL_ERR", verbs.WCGeneralErr), value("IBV_WC_TM_RNDV_INCOMPLETE", verbs.WCTMRndvIncomplete),

		value("IBV_EVENT_CQ_ERR", verbs.EventCQErr), value("IBV_EVENT_QP_FATAL", verbs.EventQPFatal),
		value("IBV_EVENT_PATH_MIG_ERR", verbs.EventPathMigErr), value("IBV_EVENT_DEVICE_FATAL", verbs.EventDeviceFatal),
		value("IBV_EVENT_PORT_ACTIVE", verbs.EventPortActive), value("IBV_EVENT_SRQ_ERR", verbs.EventSRQErr),
		value("IBV_EVENT_SRQ_LIMIT_REACHED", verbs.EventSRQLimitReached), value("IBV_EVENT_QP_LAST_WQE_REACHED", verbs.EventQPLastWQEReached),
		value("IBV_EVENT_CLIENT_REREGISTER", verbs.EventClientReregister), value("IBV_EVENT_GID_CHANGE", verbs.EventGIDChange),

		value("RDMA_CM_EVENT_ADDR_RESOLVED", driver.CMAddrResolved), value("RDMA_CM_EVENT_ADDR_ERROR", driver.CMAddrError),
		value("RDMA_CM_EVENT_ROUTE_RESOLVED", driver.CMRouteResolved), value("RDMA_CM_EVENT_ROUTE_ERROR", driver.CMRouteError),
		value("RDMA_CM_EVENT_CONNECT_REQUEST", driver.CMConnectRequest), value("RDMA_CM_EVENT_CONNECT_RESPONSE", driver.CMConnectResponse),
		value("RDMA_CM_EVENT_CONNECT_ERROR", driver.CMConnectError), value("RDMA_CM_EVENT_UNREACHABLE", driver.CMUnreachable),
		value("RDMA_CM_EVENT_REJECTED", driver.CMRejected), value("RDMA_CM_EVENT_ESTABLISHED", driver.CMEstablished),
		value("RDMA_CM_EVENT_DISCONNECTED", driver.CMDisconnected), value("RDMA_CM_EVENT_DEVICE_REMOVAL", driver.CMDeviceRemoval),
		value("RDMA_CM_EVENT_MULTICAST_JOIN", driver.CMMulticastJoin), value("RDMA_CM_EVENT_MULTICAST_ERROR", driver.CMMulticastError),
		value("RDMA_CM_EVENT_ADDR_CHANGE", driver.CMAddrChange), value("RDMA_CM_EVENT_TIMEWAIT_EXIT", driver.CMTimewaitExit),
	}
}
