package verbstest

import (
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// remotePeer is the suite's handle of a peer process, and its own End.
type remotePeer struct {
	*End
	cmd   *exec.Cmd
	hello peerHello
	enc   *json.Encoder
	dec   *json.Decoder
	id    *cmID // of an End that was dialled
	dead  bool
	e     *env
}

// startPeer starts a peer process and connects an End to it by hand, where that can be done.
func (e *env) startPeer(cfg EndConfig) *remotePeer {
	e.t.Helper()
	r := e.startProcess(cfg.Type)
	r.End = e.end(cfg)
	if by := e.byCM(); by != nil {
		l := by.newID(e.t)
		require.NoError(e.t, l.BindAddr(netip.AddrPortFrom(by.Addr, 0)))
		require.NoError(e.t, l.Listen(1))
		require.NoError(e.t, r.enc.Encode(peerHello{Dial: l.LocalAddr().String(), Number: true}))
		by.accept(l, r.End)
		r.report()
		return r
	}
	require.NoError(e.t, r.enc.Encode(peerHello{Address: r.Address(), Addr: r.MR.Addr(), RKey: r.MR.RKey()}))
	r.Connect(r.hello.Address)
	r.report()
	return r
}

// startDialingPeer starts a peer process that connects to an End by the CM.
func (e *env) startDialingPeer(cfg EndConfig) *remotePeer {
	e.t.Helper()
	r := e.startProcess(verbs.QPTypeRC)
	l := e.listen()
	require.NoError(e.t, r.enc.Encode(peerHello{Dial: l.LocalAddr().String()}))
	r.id = e.adopt(l.next(driver.CMConnectRequest).ID)
	r.End = r.id.end(cfg)
	require.NoError(e.t, r.id.Accept(connParam(nil)))
	r.id.next(driver.CMEstablished)
	r.report()
	return r
}

func (e *env) startProcess(typ verbs.QPType) *remotePeer {
	e.t.Helper()
	cmd := e.cfg.Peer(e.t)
	cmd.Env = append(cmd.Env, peerTypeEnv+"="+typ.String())
	in, err := cmd.StdinPipe()
	require.NoError(e.t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(e.t, err)
	cmd.Stderr = os.Stderr
	require.NoError(e.t, cmd.Start())
	r := &remotePeer{cmd: cmd, enc: json.NewEncoder(in), dec: json.NewDecoder(out), e: e}
	e.t.Cleanup(r.kill)
	// A peer that hangs is killed, so that no read from it waits for ever.
	watchdog := time.AfterFunc(4*e.cfg.Timeout, func() { _ = cmd.Process.Kill() })
	e.t.Cleanup(func() { watchdog.Stop() })
	require.NoError(e.t, r.dec.Decode(&r.hello), "the peer process says nothing")
	return r
}

func (r *remotePeer) report() int {
	r.e.t.Helper()
	var report peerReport
	require.NoError(r.e.t, r.dec.Decode(&report))
	require.Empty(r.e.t, report.Err)
	return report.Done
}

func (r *remotePeer) order(op string, count int) {
	r.e.t.Helper()
	require.NoError(r.e.t, r.enc.Encode(peerOrder{Op: op, Count: count}))
}

// kill kills the process, as kill -9 does, and waits until it is gone.
func (r *remotePeer) kill() {
	if !r.dead {
		r.dead = true
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
	}
}

// write is a WRITE into the peer process's memory.
func (r *remotePeer) write(id uint64, off, n int) verbs.SendWR {
	return verbs.SendWR{
		WRID: id, Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: r.SGL(off, n),
		RemoteAddr: r.hello.Addr, RKey: r.hello.RKey,
	}
}
