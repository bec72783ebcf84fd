package debughttp

import (
	"encoding/json"
	"fmt"
	"io"

	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// get asks h, as a client that accepts so.
func get(t *testing.T, h http.Handler, query, accept string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest("GET", "/debug/rdmanet"+query, nil)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func testAddr() string {
	if addr := os.Getenv("RDMANET_TEST_ADDR"); addr != "" {
		return addr
	}
	return "127.0.0.1:0"
}

func TestHandler(t *testing.T) {
	l, err := rdmanet.Listen("rdma", testAddr())
	require.NoError(t, err)
	defer l.Close()
	client, err := rdmanet.Dial("rdma", l.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	server, err := l.Accept()
	require.NoError(t, err)
	defer server.Close()
	_, err = client.Write(make([]byte, 1000))
	require.NoError(t, err)
	_, err = io.ReadFull(server, make([]byte, 1))
	require.NoError(t, err)

	conns, lanes, some := strings.Cut(strings.TrimSpace(get(t, Handler(), "", "").Body.String()), "\n\n")
	lines := strings.Split(conns, "\n")
	require.Len(t, lines, 4)
	for i, prefix := range []string{"State", "LISTEN", "ESTAB", "ESTAB"} {
		require.True(t, strings.HasPrefix(lines[i], prefix), lines[i])
	}
	require.Contains(t, lines[1], l.Addr().String())
	require.Contains(t, lines[1], fmt.Sprintf("0/%d", rdmanet.DefaultBacklog()))
	all := lines[2] + "\n" + lines[3]
	require.Contains(t, all, client.LocalAddr().String()+"  > "+client.RemoteAddr().String())
	require.Contains(t, all, server.LocalAddr().String()+"  < "+server.RemoteAddr().String())
	require.Contains(t, all, client.(*rdmanet.Conn).Device())
	require.Contains(t, all, "999/", "what was not read")
	require.Equal(t, len(rdmanet.Lanes()) > 0, some)
	for _, l := range rdmanet.Lanes() { // there are none for connections with QPs of their own
		require.Contains(t, lanes, l.Local.String())
		require.Contains(t, lanes, fmt.Sprintf("%08x", l.Epoch))
	}

	var list struct {
		Listeners []struct{ Addr netip.AddrPort }
		Lanes     []struct{ ID uint64 }
		Conns     []struct {
			Lane     uint64
			State    string
			Local    netip.AddrPort
			Accepted bool
			Unread   int
		}
	}
	require.NoError(t, json.Unmarshal(get(t, Handler(), "?format=json", "").Body.Bytes(), &list))
	require.Len(t, list.Listeners, 1)
	require.Equal(t, l.Addr().String(), list.Listeners[0].Addr.String())
	require.Len(t, list.Conns, 2)
	for _, c := range list.Conns {
		require.Equal(t, "ESTAB", c.State)
		require.Equal(t, some, slices.ContainsFunc(list.Lanes, func(l struct{ ID uint64 }) bool { return l.ID == c.Lane }))
		if c.Accepted {
			require.Equal(t, 999, c.Unread)
		}
	}

	page := get(t, Handler(), "", "text/html").Body.String()
	rows := 3 + 2 // of connections and of listeners, with their heads
	if links := map[uint64]bool{}; some {
		for _, l := range rdmanet.Lanes() {
			links[l.Link] = true
		}
		rows += 1 + len(list.Lanes) + 1 + len(links)
	}
	require.Equal(t, rows, strings.Count(page, "<tr"))
	require.Contains(t, page, `<td data-label="Local">`+client.LocalAddr().String()+"</td>")
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Contains(t, page, fmt.Sprintf("process <b>%d</b> on <b>%s</b>", os.Getpid(), host))
}

func TestFormats(t *testing.T) {
	h := handler(func() listing { return listing{} })
	const text, page, data = "text/plain; charset=utf-8", "text/html; charset=utf-8", "application/json"
	for _, c := range []struct{ query, accept, want string }{
		{"", "", text},
		{"", "*/*", text},
		{"", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", page},
		{"", "application/json", data},
		{"", "text/*;q=0.5, application/json;q=0.4", text},
		{"", "text/plain;q=0, text/*", page},
		{"", "application/json;q=nonsense, text/html;q=0.1", page},
		{"", "application/json;q=7, text/html;q=0.1", page},
		{"", "image/png", text},
		{"", ";;;,", text},
		{"?format=text", "text/html", text},
		{"?format=html", "application/json", page},
		{"?format=json", "text/html", data},
	} {
		w := get(t, h, c.query, c.accept)
		require.Equal(t, http.StatusOK, w.Code, "%+v", c)
		require.Equal(t, c.want, w.Header().Get("Content-Type"), "%+v", c)
		require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		require.Equal(t, "Accept", w.Header().Get("Vary"))
	}
	w := get(t, h, "?format=<script>", "text/html")
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.NotContains(t, w.Body.String(), "script")
	require.Contains(t, w.Header().Get("Content-Type"), "text/plain")
}

func TestMethods(t *testing.T) {
	h := handler(func() listing { return listing{} })
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("POST", "/", nil))
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	require.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
	w = httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("HEAD", "/", nil))
	require.Equal(t, http.StatusOK, w.Code)
	require.Zero(t, w.Body.Len())
}

// TestEscaping has names that come from outside, as those of devices and of an
// address's zone, be markup.
func TestEscaping(t *testing.T) {
	const evil = `"><script>alert(1)</script>`
	zone, err := netip.ParseAddr("fe80::1%" + evil)
	require.NoError(t, err)
	h := handler(func() listing {
		return listing{
			Listeners: []rdmanet.ListenerInfo{{Device: evil}},
			Conns:     []rdmanet.ConnInfo{{Device: evil, Local: netip.AddrPortFrom(zone, 1)}},
			Lanes:     []rdmanet.LaneInfo{{Device: evil, Remote: netip.AddrPortFrom(zone, 1)}},
		}
	})
	w := get(t, h, "?format=html", "")
	require.NotContains(t, w.Body.String(), "<script")
	require.Equal(t, 7, strings.Count(w.Body.String(), "&lt;script&gt;alert(1)&lt;/script&gt;"))
	require.True(t, strings.HasPrefix(w.Header().Get("Content-Security-Policy"), "default-src 'none';"))
	require.NotContains(t, get(t, h, "?format=json", "").Body.String(), "<script")
	for _, name := range []string{"q", "lane", "link", "refresh"} {
		page := get(t, h, "?format=html&"+name+"="+url.QueryEscape(evil), "").Body.String()
		require.NotContains(t, page, "<script", name)
	}
}

func TestRows(t *testing.T) {
	now := time.Now()
	c := rdmanet.ConnInfo{Since: now.Add(-3*time.Hour - 1500*time.Millisecond)}
	c.CreditStalls, c.CreditStallTime = 12, 1234567*time.Microsecond
	r := connRow(&c, now)
	require.Len(t, r, len(columns))
	require.Equal(t, "12, 1.23s", r[9])
	require.Equal(t, "-", r[10])
	require.Equal(t, "3h0m1s", r[11])
	c.Checksum, c.ChecksumErrors = true, 1
	require.Equal(t, "1", connRow(&c, now)[10])
	require.Len(t, listenerRow(new(rdmanet.ListenerInfo)), len(columns))
	require.Equal(t, "-", r[4])
	c.Lane = 7
	require.Equal(t, "7", connRow(&c, now)[4])
	l := rdmanet.LaneInfo{
		ID: 7, Link: 6, State: rdmanet.LaneUp, Epoch: 0xbeef, Conns: 2, Opened: 5, Places: 30, Waiting: 1,
		Credits: 500, Receives: 512, SendQueue: 3, SendQueueSize: 128, Registered: 4096, Since: now.Add(-time.Minute),
	}
	lr := laneRow(&l, now)
	require.Len(t, lr, len(laneColumns))
	require.Equal(t, row{"7", "6", "0000beef", "2/5", "30, 1", "500/512", "3/128", "4096", "1m0s"}, lr[4:])
	require.Equal(t, "0s", age(-time.Second), "the clock was set back")
	for d, want := range map[time.Duration]string{0: "0s", 7: "7ns", 1234 * time.Microsecond: "1.23ms", 90 * time.Second: "1m30s"} {
		require.Equal(t, want, short(d).String())
	}
}
