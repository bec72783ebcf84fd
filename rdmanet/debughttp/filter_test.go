package debughttp

import (
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"regexp"
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
		{"?q=12345", 1, 0, 0},
		{"?q=tcp", 1, 0, 0},
		{"?q=4096+OF", 2, 0, 0},
		{"?q=16384/16384", 0, 1, 0},
		{"?q=16+kib+of", 0, 9, 0},
		{"?q=640+kib", 0, 0, 2},
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

// TestFilterFindsWhatIsShown: a row stays when one looks for what it shows.
func TestFilterFindsWhatIsShown(t *testing.T) {
	h := handler(troubled)
	row, cell := regexp.MustCompile(`<tr id="([^"]*)"[^>]*>(.*)</tr>`), regexp.MustCompile(`<td[^>]*>(?:<a[^>]*>)?([^<]+)<`)
	rows := row.FindAllStringSubmatch(get(t, h, "", "text/html").Body.String(), -1)
	require.Len(t, rows, 2+9+2)
	for _, r := range rows {
		for _, c := range cell.FindAllStringSubmatch(r[2], -1) {
			shown := html.UnescapeString(c[1])
			kind, _, _ := strings.Cut(r[1], "-")
			page := get(t, h, "?"+url.Values{"q": {shown}}.Encode(), "text/html").Body.String()
			require.Regexp(t, `<tr id="`+kind+`-[^>]*>.*>`+regexp.QuoteMeta(c[1])+`<`, page, "%s: %q", r[1], shown)
		}
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
