package debughttp

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFilter(t *testing.T) {
	h := handler(troubled)
	for _, c := range []struct {
		query                   string
		listeners, conns, lanes int
	}{
		{"", 2, 9, 2},
		{"?q=+", 2, 9, 2},
		{"?q=failed", 0, 2, 0},
		{"?q=FAILED+mlx5", 0, 2, 0},
		{"?q=failed+soft0", 0, 0, 0},
		{"?q=7000", 1, 0, 0},
		{"?q=0000beef", 0, 0, 2},
		{"?lane=2", 0, 4, 1},
		{"?link=1", 0, 5, 1},
		{"?link=1&lane=2", 0, 0, 0},
		{"?lane=2&q=failed", 0, 1, 0},
		{"?lane=9", 0, 0, 0},
	} {
		var got struct{ Listeners, Conns, Lanes []json.RawMessage }
		w := get(t, h, c.query, "application/json")
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
		require.NotContains(t, w.Body.String(), "null", "a list is empty")
		require.Len(t, got.Listeners, c.listeners, c.query)
		require.Len(t, got.Conns, c.conns, c.query)
		require.Len(t, got.Lanes, c.lanes, c.query)
		lines := strings.Split(strings.TrimSpace(get(t, h, c.query, "text/plain").Body.String()), "\n")
		want := 1 + c.listeners + c.conns
		if c.lanes > 0 {
			want += 2 + c.lanes
		}
		require.Len(t, lines, want, c.query)
	}
}

func TestFilteredPage(t *testing.T) {
	page := get(t, handler(troubled), "?lane=2&refresh=7", "text/html").Body.String()
	require.Contains(t, page, `<input type="hidden" name="lane" value="2">`)
	require.Contains(t, page, `<option value="7" selected>every 7 s</option>`)
	require.Contains(t, page, `<a href="?refresh=7">Show all</a>`)
	require.Contains(t, page, `<a href="?format=json&amp;lane=2">JSON</a>`)
	require.Contains(t, page, "There are 4 in what is not shown")
	// Anchors are those of the rows that are shown.
	require.Contains(t, page, `<b>failed</b> <a href="#conn-3">`)
	require.Contains(t, page, `id="conn-3" class="bad"`)
}

func TestQueryIsRefused(t *testing.T) {
	for _, bad := range []string{"lane=x", "lane=-1", "link=1.5", "refresh=-1", "refresh=soon", "refresh=3601", "refresh=99999999999999999999"} {
		w := get(t, handler(troubled), "?"+bad, "text/html")
		require.Equal(t, http.StatusBadRequest, w.Code, bad)
		require.Contains(t, w.Header().Get("Content-Type"), "text/plain")
	}
}

func TestQueryComesBack(t *testing.T) {
	q := query{text: `a "b" & <c>`, lane: 1<<64 - 1, link: 7, refresh: maxRefresh}
	values, err := url.ParseQuery(q.values().Encode())
	require.NoError(t, err)
	again, err := parseQuery(values)
	require.NoError(t, err)
	require.Equal(t, q, again)
	require.Empty(t, query{}.values())
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 102400: "100 KiB", 262081: "256 KiB",
		1 << 20: "1 MiB", 5 << 30: "5 GiB", 3 << 40: "3 TiB",
	} {
		require.Equal(t, want, size(n))
	}
}
