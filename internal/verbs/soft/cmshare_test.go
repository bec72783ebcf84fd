//go:build linux && (amd64 || arm64)

package soft

import (
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/control"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// TestShareAddress has two listeners with one address, of which either is enough.
func TestShareAddress(t *testing.T) {
	noLeaks(t)
	opts := driver.CMOptions{ReusePort: true}
	first := listenAt(t, "127.0.0.1:0", 4, opts)
	addr := first.LocalAddr()
	second := newTestID(t, opts)
	require.NoError(t, second.BindAddr(addr))
	require.Equal(t, addr, second.LocalAddr())
	require.Nil(t, second.CMID.(driver.ListenSharer).Companion())
	require.NoError(t, second.Listen(4))

	require.NoError(t, first.Close())
	honest(t, second)
	// The address is as taken as before: for those that cover it, too.
	for _, at := range []string{"127.0.0.1", "0.0.0.0", "::"} {
		id := newTestID(t, driver.CMOptions{})
		require.ErrorIs(t, id.BindAddr(netip.AddrPortFrom(netip.MustParseAddr(at), addr.Port())), unix.EADDRINUSE)
	}
	require.NoError(t, second.Close())
	third := newTestID(t, driver.CMOptions{})
	require.NoError(t, third.BindAddr(addr))
}

// TestShareCompanion has a file go with the address, from one to the next.
func TestShareCompanion(t *testing.T) {
	noLeaks(t)
	opts := driver.CMOptions{ReusePort: true}
	first := newTestID(t, opts)
	require.NoError(t, first.BindAddr(localhost0))
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer w.Close()
	require.NoError(t, first.CMID.(driver.ListenSharer).SetCompanion(r))
	require.NoError(t, first.Listen(4))
	late, err := os.Open(os.DevNull)
	require.NoError(t, err)
	require.ErrorIs(t, first.CMID.(driver.ListenSharer).SetCompanion(late), verbs.ErrState)
	require.ErrorIs(t, late.Close(), os.ErrClosed, "it is the id's all the same")

	second := newTestID(t, opts) // keeps it for the third
	require.NoError(t, second.BindAddr(first.LocalAddr()))
	require.NoError(t, second.Listen(4))
	third := newTestID(t, opts)
	require.NoError(t, first.Close())
	require.NoError(t, third.BindAddr(second.LocalAddr()))
	f := third.CMID.(driver.ListenSharer).Companion()
	require.NotNil(t, f)
	defer f.Close()
	_, err = w.Write([]byte("x"))
	require.NoError(t, err)
	b := make([]byte, 1)
	_, err = f.Read(b)
	require.NoError(t, err)
	require.Equal(t, "x", string(b))
}

// ownHost is an address that no other test uses, so that none takes a port which is free for a moment.
const ownHost = "127.83.0.1:0"

// TestShareWhileLeaving: an address is shared, or free, at every moment at which the one that has it closes.
func TestShareWhileLeaving(t *testing.T) {
	noLeaks(t)
	opts := driver.CMOptions{ReusePort: true}
	for i := range 300 {
		first := listenAt(t, ownHost, 4, opts)
		addr := first.LocalAddr()
		closed := make(chan error, 1)
		go func() { closed <- first.Close() }()
		for range i % 30 {
			runtime.Gosched()
		}
		second := newTestID(t, opts)
		require.NoError(t, second.BindAddr(addr), "round %d", i)
		require.NoError(t, second.Listen(4))
		require.NoError(t, <-closed)
		require.NoError(t, second.Close())
	}
}

// TestShareTogether: of several that come at once to a free address one takes it and the others join it.
func TestShareTogether(t *testing.T) {
	noLeaks(t)
	opts := driver.CMOptions{ReusePort: true}
	for range 100 {
		free := listenAt(t, ownHost, 4, opts)
		addr := free.LocalAddr()
		require.NoError(t, free.Close())
		ids := make([]*testID, 4)
		for i := range ids {
			ids[i] = newTestID(t, opts)
		}
		errs := make(chan error, len(ids))
		for _, id := range ids {
			go func() {
				err := id.BindAddr(addr)
				if err == nil {
					err = id.Listen(4)
				}
				errs <- err
			}()
		}
		for range ids {
			require.NoError(t, <-errs)
		}
		for _, id := range ids {
			require.NoError(t, id.Close())
		}
	}
}

// TestShareWithSilent: who has the address and does not answer is asked once.
func TestShareWithSilent(t *testing.T) {
	noLeaks(t)
	const patience = 20 * time.Millisecond
	l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{ReusePort: true})
	l.CMID.(*cmID).mu.Lock()
	defer l.CMID.(*cmID).mu.Unlock()
	id := newTestID(t, driver.CMOptions{ReusePort: true, HandshakeTimeout: patience})
	err := id.BindAddr(l.CMID.(*cmID).local)
	require.ErrorIs(t, err, unix.EADDRINUSE)
	require.ErrorContains(t, err, "has not answered within 20ms")
}

// TestShareIsRefused has listeners that do not share, and ids that do not listen.
func TestShareIsRefused(t *testing.T) {
	noLeaks(t)
	opts := driver.CMOptions{ReusePort: true}
	l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{})
	id := newTestID(t, opts)
	err := id.BindAddr(l.LocalAddr())
	require.ErrorIs(t, err, unix.EADDRINUSE)
	require.ErrorContains(t, err, "ListenConfig.ReusePort")
	honest(t, l)
	sharer := listenAt(t, "127.0.0.1:0", 4, opts)
	err = id.BindAddr(netip.AddrPortFrom(netip.IPv4Unspecified(), sharer.LocalAddr().Port()))
	require.ErrorIs(t, err, unix.EADDRINUSE)
	require.NotContains(t, err.Error(), "shared", "nobody has that very address, and nobody was asked")
	bound := newTestID(t, opts)
	require.NoError(t, bound.BindAddr(localhost0))
	require.ErrorIs(t, id.BindAddr(bound.LocalAddr()), unix.EADDRINUSE)
}

// TestHostileSharer has somebody at the address that answers what it likes.
func TestHostileSharer(t *testing.T) {
	noLeaks(t)
	name := control.BoundName(soft0.name, "127.0.0.1", 1)
	lfd, err := control.HoldName(name)
	require.NoError(t, err)
	defer unix.Close(lfd)
	require.NoError(t, unix.Listen(lfd, 1))
	other, err := control.HoldName(control.BoundName(soft0.name, "127.0.0.1", 2))
	require.NoError(t, err)
	defer unix.Close(other)
	for _, tt := range []struct {
		name string
		msg  []byte
		fds  []int
		ok   bool
	}{
		{"all there is", []byte{control.MsgSHARED, control.WireVersion, 7}, []int{lfd, 1, 1}, true},
		{"the socket", []byte{control.MsgSHARED, control.WireVersion, 1}, []int{lfd}, true},
		{"nothing", nil, nil, false},
		{"a refusal", []byte{control.MsgREJ}, nil, false},
		{"another message", []byte{control.MsgREP, control.WireVersion, 1}, []int{lfd}, false},
		{"another version", []byte{control.MsgSHARED, control.WireVersion + 1, 1}, []int{lfd}, false},
		{"no socket", []byte{control.MsgSHARED, control.WireVersion, 2}, []int{1}, false},
		{"too few descriptors", []byte{control.MsgSHARED, control.WireVersion, 3}, []int{lfd}, false},
		{"too many descriptors", []byte{control.MsgSHARED, control.WireVersion, 1}, []int{lfd, 1}, false},
		{"unknown parts", []byte{control.MsgSHARED, control.WireVersion, 9}, []int{lfd}, false},
		{"what is no socket", []byte{control.MsgSHARED, control.WireVersion, 1}, []int{1}, false},
		{"what does not listen", []byte{control.MsgSHARED, control.WireVersion, 1}, []int{other}, false},
	} {
		var fds []int
		for _, fd := range tt.fds {
			dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
			require.NoError(t, err)
			fds = append(fds, dup)
		}
		claim, companion, err := parseShared(tt.msg, fds, name)
		if !tt.ok {
			require.Error(t, err, tt.name)
			require.Nil(t, claim, tt.name)
			control.CloseFDs(fds)
			continue
		}
		require.NoError(t, err, tt.name)
		claim.release()
		if len(fds) == 3 {
			require.NoError(t, companion.Close())
		} else {
			require.Nil(t, companion)
		}
	}
}
