package link

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// A handOver is a listener that leaves in a hurry, so that it does not take a stream which was
// opened, and the next one on its address.
type handOver struct {
	*bed
	next   *Listener
	held   func()  // the lock of the first listener's lane is let go of
	client *Stream // that is lost
	stays  [2]*Stream
}

// beginHandOver returns when client was opened and the first listener has not heard of it.
func beginHandOver(t *testing.T, cfg Config) *handOver {
	t.Helper()
	cfg.CM.ReusePort = true
	h := &handOver{}
	t.Cleanup(func() { h.l.Abandon() }) // once it is closed
	h.bed = newBed(t, cfg)
	h.stays[0], h.stays[1] = h.pair()
	say(t, h.stays[0], h.stays[1])
	near, far := h.stays[0].e, h.stays[1].e
	require.Eventually(t, func() bool { // a place for it is there
		near.mu.Lock()
		defer near.mu.Unlock()
		return near.state.Places() > 0
	}, patience, time.Millisecond)
	far.mu.Lock()
	h.held = sync.OnceFunc(far.mu.Unlock)
	t.Cleanup(h.held)
	h.client = h.dial()
	t.Cleanup(func() { _ = h.client.Close() })
	return h
}

// listenNext has another listener there.
func (h *handOver) listenNext(t *testing.T) {
	t.Helper()
	next, err := Listen(h.l.cfg, h.l.Addr())
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = next.Close()
		next.Abandon()
	})
	h.next = next
}

// leave has the first listener leave.
func (h *handOver) leave(t *testing.T) {
	t.Helper()
	require.NoError(t, h.l.id.Close())
	far := h.stays[1].e // whose lock is held
	far.away = true
	far.listener.note(noteLeft, 0)
	far.goAway(lane.StageStopped)
	far.settle()
	h.held()
	far.startWorker()
}

// accept returns the stream at the next listener.
func (h *handOver) accept(t *testing.T) *Stream {
	t.Helper()
	s, err := h.next.Accept(h.ctx())
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func eachHandOver(t *testing.T, f func(t *testing.T, h *handOver)) {
	if cm.DefaultDevice() != "" {
		t.Skip("no two listeners have one address there")
	}
	eachFlavour(t, func(t *testing.T, cfg Config) { f(t, beginHandOver(t, cfg)) })
}

// TestRedial: a stream that a listener has not taken is the next listener's, with all that was
// written and with calls that wait since before, and those that were taken stay.
func TestRedial(t *testing.T) {
	eachHandOver(t, func(t *testing.T, h *handOver) {
		h.listenNext(t)
		n, err := h.client.Write([]byte("hel"))
		require.NoError(t, err)
		require.Equal(t, 3, n)
		_, err = h.client.Write([]byte("lo"))
		require.NoError(t, err)
		got := make(chan string, 1)
		go func() {
			b := make([]byte, 4)
			_, _ = io.ReadFull(h.client, b)
			got <- string(b)
		}()
		require.Eventually(t, h.client.in.waiter.waiting, patience, time.Millisecond)
		at := h.client.LocalAddr().String()
		h.leave(t)
		server := h.accept(t)
		b := make([]byte, 5)
		_, err = io.ReadFull(server, b)
		require.NoError(t, err)
		require.Equal(t, "hello", string(b))
		_, err = server.Write([]byte("back"))
		require.NoError(t, err)
		within(t, "the Read", func() { require.Equal(t, "back", <-got) })
		require.Equal(t, at, h.client.LocalAddr().String())
		require.Equal(t, at, server.RemoteAddr().String())
		say(t, h.client, server)
		say(t, server, h.client)
		say(t, h.stays[0], h.stays[1])
		require.NoError(t, h.client.Close())
		_, err = server.Read(b)
		require.ErrorIs(t, err, io.EOF)
	})
}

// TestRedialAnotherPort: where another stream has the port at the next listener the stream gets
// another one there.
func TestRedialAnotherPort(t *testing.T) {
	eachHandOver(t, func(t *testing.T, h *handOver) {
		h.listenNext(t)
		at := h.client.LocalAddr().(*net.TCPAddr)
		host := h.stays[1].RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		require.True(t, h.next.clients.take(host, uint16(at.Port)))
		_, err := h.client.Write([]byte("hello"))
		require.NoError(t, err)
		h.leave(t)
		server := h.accept(t)
		require.NotEqual(t, at.Port, server.RemoteAddr().(*net.TCPAddr).Port)
		b := make([]byte, 5)
		_, err = io.ReadFull(server, b)
		require.NoError(t, err)
		require.Equal(t, "hello", string(b))
		say(t, server, h.client)
		require.Equal(t, at.String(), h.client.LocalAddr().String())
	})
}

// TestRedialClosed: a stream that was closed, wholly or for writing, is delivered all the same,
// and one that was broken off is no longer dialled.
func TestRedialClosed(t *testing.T) {
	for _, how := range []string{"Close", "CloseWrite", "Close later", "CloseWrite later", "Reset"} {
		t.Run(how, func(t *testing.T) {
			eachHandOver(t, func(t *testing.T, h *handOver) {
				h.listenNext(t)
				finished := make(chan struct{})
				h.client.OnFinish(func() { close(finished) })
				_, err := h.client.Write([]byte("hello"))
				require.NoError(t, err)
				end := map[string]func() error{"Close": h.client.Close, "CloseWrite": h.client.CloseWrite, "Reset": h.client.Reset}[strings.TrimSuffix(how, " later")]
				if how != strings.TrimSuffix(how, " later") {
					// While it is dialled again, which waits for a place.
					h.next.mu.Lock()
					h.leave(t)
					h.awaitMoving(t)
					err = end()
					h.next.mu.Unlock()
				} else {
					err = end()
					h.leave(t)
				}
				require.NoError(t, err)
				if how == "Reset" {
					within(t, "the end", func() { <-finished })
					return
				}
				server := h.accept(t)
				b, err := io.ReadAll(server)
				require.NoError(t, err)
				require.Equal(t, "hello", string(b))
				if strings.HasPrefix(how, "CloseWrite") {
					say(t, server, h.client)
					require.NoError(t, h.client.Close())
				}
				require.NoError(t, server.Close())
				within(t, "the end", func() { <-finished })
			})
		})
	}
}

// TestRedialDeadlines: those that were set before or while a stream is dialled again hold, and
// so does Close for calls that wait then.
func TestRedialDeadlines(t *testing.T) {
	eachHandOver(t, func(t *testing.T, h *handOver) {
		h.listenNext(t)
		h.next.mu.Lock() // so that the dial waits
		h.leave(t)
		require.NoError(t, h.client.SetReadDeadline(time.Now().Add(time.Millisecond)))
		within(t, "a Read", func() {
			_, err := h.client.Read(make([]byte, 1))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		})
		require.NoError(t, h.client.SetReadDeadline(time.Time{}))
		got := make(chan error)
		read := func() { _, err := h.client.Read(make([]byte, 1)); got <- err }
		go read()
		require.Eventually(t, h.client.in.waiter.waiting, patience, time.Millisecond)
		require.NoError(t, h.client.SetReadDeadline(longPast))
		within(t, "a Read", func() { require.ErrorIs(t, <-got, os.ErrDeadlineExceeded) })
		require.NoError(t, h.client.SetWriteDeadline(longPast))
		h.next.mu.Unlock()
		server := h.accept(t)
		_, err := server.Write([]byte("x"))
		require.NoError(t, err)
		_, err = h.client.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		_, err = h.client.Write([]byte("x"))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, h.client.SetDeadline(time.Time{}))
		_, err = h.client.Read(make([]byte, 1))
		require.NoError(t, err)
	})
	eachHandOver(t, func(t *testing.T, h *handOver) {
		h.listenNext(t)
		h.next.mu.Lock()
		h.leave(t)
		got := make(chan error)
		go func() { _, err := h.client.Read(make([]byte, 1)); got <- err }()
		require.Eventually(t, h.client.in.waiter.waiting, patience, time.Millisecond)
		require.NoError(t, h.client.Close())
		within(t, "a Read", func() { require.ErrorIs(t, <-got, net.ErrClosed) })
		h.next.mu.Unlock()
		server := h.accept(t)
		_, err := server.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	})
}

// TestRedialNobodyThere: where nobody listens any more the stream is reset, as over TCP.
func TestRedialNobodyThere(t *testing.T) {
	eachHandOver(t, func(t *testing.T, h *handOver) {
		finished := make(chan struct{})
		h.client.OnFinish(func() { close(finished) })
		h.leave(t)
		within(t, "a Read", func() {
			_, err := h.client.Read(make([]byte, 1))
			require.ErrorIs(t, err, syscall.ECONNRESET)
			require.NotErrorIs(t, err, syscall.ECONNREFUSED)
		})
		_, err := h.client.Write([]byte("x"))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		require.NoError(t, h.client.Close())
		within(t, "the end", func() { <-finished })
	})
}

// redialled has the client have been dialled again so often.
func (h *handOver) redialled(tries int) {
	e := h.client.e
	e.mu.Lock()
	defer e.mu.Unlock()
	h.client.re.home.tries = tries
}

// TestRedialOften: listener after listener leaves, and the stream goes on to the next one until
// one takes it. How often is bounded.
func TestRedialOften(t *testing.T) {
	eachHandOver(t, func(t *testing.T, h *handOver) {
		tries := 0
		h.listenNext(t)
		h.links.cfg.Redial = func(ctx context.Context, dial func(context.Context) error) error {
			tries++
			return dial(ctx)
		}
		h.redialled(maxRedials - 1)
		h.leave(t)
		say(t, h.client, h.accept(t))
		require.Equal(t, 1, tries)
	})
	eachHandOver(t, func(t *testing.T, h *handOver) {
		h.listenNext(t)
		h.redialled(maxRedials)
		h.leave(t)
		_, err := h.client.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
	})
}

// TestRedialReopened: a dial after Close is for the listener that has the address then, also if the
// dialer has not heard yet that the one before has left. It may have streams that stay, or none.
func TestRedialReopened(t *testing.T) {
	mostlyWaits(t)
	if cm.DefaultDevice() != "" {
		t.Skip("an address may be in use for a while after Close there")
	}
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		for i := range 10 {
			client, server := b.pair()
			if i%2 == 0 {
				require.NoError(t, client.Close())
				require.NoError(t, server.Close())
			}
			at := b.l.Addr()
			require.NoError(t, b.l.Close())
			next, err := Listen(b.l.cfg, at)
			require.NoError(t, err)
			t.Cleanup(func() { _ = next.Close() })
			b.l = next
			client = b.dial()
			server = b.accept()
			say(t, client, server)
			say(t, server, client)
			require.NoError(t, client.Close())
			require.NoError(t, server.Close())
		}
	})
}

// A receiverUse is what a method uses of its receiver.
type receiverUse struct{ in, what string }

func usedOf(fn *ast.FuncDecl) (all []receiverUse) {
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == fn.Recv.List[0].Names[0].Name {
				all = append(all, receiverUse{fn.Name.Name, sel.Sel.Name})
			}
		}
		return true
	})
	return all
}

// TestHandleHasAllMethods: no method is promoted from the stream that a handle was made of, and
// none of the handle uses a field of that, as it may have been dialled again.
func TestHandleHasAllMethods(t *testing.T) {
	paths, err := filepath.Glob("*.go")
	require.NoError(t, err)
	methods := map[string][]string{}
	var used []receiverUse
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil || !fn.Name.IsExported() {
				continue
			}
			if star, ok := fn.Recv.List[0].Type.(*ast.StarExpr); ok {
				of := star.X.(*ast.Ident).Name
				methods[of] = append(methods[of], fn.Name.Name)
				if of == "Stream" {
					used = append(used, usedOf(fn)...)
				}
			}
		}
	}
	for _, u := range used {
		ok := slices.Contains([]string{"now", "lockNow", "unlock", "follow"}, u.what) || slices.Contains(methods["Stream"], u.what) ||
			u.what == "stream" && strings.HasSuffix(u.in, "Addr")
		require.True(t, ok, "%s uses %s of the first stream", u.in, u.what)
	}
	require.NotEmpty(t, methods["stream"])
	slices.Sort(methods["stream"])
	for _, m := range methods["stream"] {
		require.Contains(t, methods["Stream"], m)
	}
}
