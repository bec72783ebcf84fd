package cm_test

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// must stands for what a program does about errors.
func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// An end of a connection has a QP, and memory for one message.
type end struct {
	id      *cm.ID
	pd      verbs.PD
	channel verbs.CompChannel
	cq      verbs.CQ
	memory  verbs.Memory
	mr      verbs.MR
	qp      verbs.QP
}

// newEnd makes them on the device that the ID is bound to.
func newEnd(id *cm.ID) *end {
	e := &end{id: id, pd: must(id.Verbs().AllocPD())}
	e.channel = must(id.Verbs().CreateCompChannel())
	e.cq = must(id.Verbs().CreateCQ(8, e.channel))
	e.memory = must(id.Verbs().AllocMemory(4096, 4096))
	e.mr = must(e.pd.RegMR(e.memory.Bytes(), verbs.AccessLocalWrite))
	e.qp = must(id.CreateQP(e.pd, &verbs.QPInitAttr{
		Type: verbs.QPTypeRC, SendCQ: e.cq, RecvCQ: e.cq,
		Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1},
	}))
	return e
}

// first is the first n bytes of the memory.
func (e *end) first(n int) []verbs.SGE {
	return []verbs.SGE{{Addr: e.mr.Addr(), Length: uint32(n), LKey: e.mr.LKey()}}
}

// completion sleeps until something has completed.
func (e *end) completion() (wc [1]verbs.WC) {
	check(e.channel.SetReadDeadline(time.Now().Add(10 * time.Second)))
	check(e.channel.WaitRead(func() bool {
		check(e.cq.ReqNotify(false))
		return must(e.cq.Poll(wc[:])) == 1
	}))
	return wc
}

// close destroys all of it, in the order that verbs ask for.
func (e *end) close() {
	for _, c := range []io.Closer{e.qp, e.mr, e.memory, e.cq, e.channel, e.pd, e.id} {
		check(c.Close())
	}
}

// await takes the next event of a channel.
func await(events *cm.EventChannel, want cm.EventType) *cm.Event {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ev := must(events.GetEvent(ctx))
	check(ev.Err)
	if ev.Type != want {
		panic(ev)
	}
	return ev
}

// Two ends in one process, by the software device: one SEND goes from the dialer to the listener.
func Example() {
	passive, active := cm.NewEventChannel(), cm.NewEventChannel()
	defer passive.Close()
	defer active.Close()
	options := cm.Options{Device: "soft0"} // without it the address decides

	listening := must(passive.CreateID(options))
	defer listening.Close()
	check(listening.BindAddr(netip.MustParseAddrPort("127.0.0.1:0")))
	check(listening.Listen(1))

	id := must(active.CreateID(options))
	check(id.Resolve(context.Background(), netip.AddrPort{}, listening.LocalAddr()))
	dialer := newEnd(id)
	defer dialer.close()
	check(id.Connect(nil, 0))

	listener := newEnd(await(passive, cm.ConnectRequest).ID)
	defer listener.close()
	must(listener.qp.PostRecv([]verbs.RecvWR{{SGList: listener.first(4096)}})) // before Accept: data may follow at once
	check(listener.id.Accept(nil))
	await(passive, cm.Established)
	await(active, cm.Established)

	n := copy(dialer.memory.Bytes(), "hello, verbs")
	must(dialer.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: dialer.first(n)}}))
	fmt.Println(dialer.completion()[0].Status.String())
	wc := listener.completion()[0]
	fmt.Println(wc.Status.String(), string(listener.memory.Bytes()[:wc.ByteLen]))

	check(id.Disconnect())
	await(active, cm.Disconnected)
	await(passive, cm.Disconnected)
	// Output:
	// SUCCESS
	// SUCCESS hello, verbs
}
