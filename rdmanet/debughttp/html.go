package debughttp

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"io"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// style is that of the page. Where it is narrow each row is a card, whose fields say what
// they are.
//
//go:embed page.css
var style string

//go:embed page.html
var pageText string

// contentSecurityPolicy allows the page nothing but its own style and its form.
var contentSecurityPolicy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; style-src 'sha256-" +
		base64.StdEncoding.EncodeToString(sum[:]) + "'"
}()

var page = template.Must(template.New("page").Parse(pageText))

// mostProblems is how many the page shows. More have the same cause, as a rule.
const mostProblems = 50

// A table is one of the page.
type table struct {
	ID, Title string
	Columns   []column
	Records   []record
}

// writeHTML writes the part of all that q asks for as a page.
func writeHTML(w io.Writer, all listing, q query) error {
	l := q.apply(all)
	problems := l.problems()
	elsewhere := len(all.problems()) - len(problems)
	more := max(len(problems)-mostProblems, 0)
	tables := []table{
		{"connections", "Connections", columns, l.connRecords(q)},
		{"listeners", "Listeners", listenerColumns, l.listenerRecords()},
		{"links", "Links", linkColumns, l.linkRecords(q)},
		{"lanes", "Lanes", laneColumns, l.laneRecords(q)},
	}
	return page.Execute(w, map[string]any{
		"Style": template.CSS(style), "Listing": l, "Time": l.Time.Format(time.RFC3339),
		"Memory": size(l.MemoryInUse), "MemoryLimit": size(l.MemoryLimit),
		"Problems": problems[:len(problems)-more], "More": more, "Elsewhere": elsewhere,
		"Tables": tables, "Query": q.text, "Lane": q.lane, "Link": q.link, "Refresh": q.refresh,
		"Intervals": intervals(q.refresh), "Filters": q.filters(),
		"All": q.only(query{}), "Text": q.as(formatText), "JSON": q.as(formatJSON),
	})
}

// as asks for what is shown in another format.
func (q query) as(f format) string {
	q.refresh = 0
	v := q.values()
	v.Set("format", string(f))
	return (&url.URL{RawQuery: v.Encode()}).String()
}

// intervals are the choices of how often the page asks again, the one that is in use among them.
func intervals(used int) (all []struct {
	Seconds int
	Text    string
	Used    bool
}) {
	seconds := []int{0, 2, 5, 15, 60}
	if !slices.Contains(seconds, used) {
		seconds = append(seconds, used)
		slices.Sort(seconds)
	}
	for _, s := range seconds {
		text := "every " + strconv.Itoa(s) + " s"
		if s == 0 {
			text = "not by itself"
		}
		all = append(all, struct {
			Seconds int
			Text    string
			Used    bool
		}{s, text, s == used})
	}
	return all
}
