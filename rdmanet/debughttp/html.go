package debughttp

import (
	"crypto/sha256"
	"encoding/base64"
	"html/template"
	"io"
	"time"
)

const style = `
:root { color-scheme: light dark; }
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em; }
h1 { font-size: 1.3em; margin: 0; }
h2 { font-size: 1.1em; margin: 1.5em 0 .5em; }
p { margin: .3em 0 1.2em; opacity: .8; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25em .9em; white-space: nowrap; border-bottom: 1px solid #8884; }
th { cursor: help; }
td:nth-child(n+5) { text-align: right; }
th:nth-child(n+5) { text-align: right; }
tr.FAILED td:first-child { color: #c22; font-weight: bold; }
`

// contentSecurityPolicy allows the page nothing but its own style.
var contentSecurityPolicy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; style-src 'sha256-" +
		base64.StdEncoding.EncodeToString(sum[:]) + "'"
}()

var page = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>RDMA connections</title>
<style>{{.Style}}</style>
<h1>RDMA connections</h1>
<p>Connections: {{.Conns}} · listeners: {{.Listeners}} · lanes: {{.Lanes}} · {{.Time}} · <a href="?format=text">text</a> · <a href="?format=json">JSON</a></p>
{{template "table" .All}}
{{- if .Lanes}}
<h2>Lanes</h2>
{{template "table" .OfLanes}}
{{- end}}
</html>
{{define "table"}}<table>
<thead><tr>{{range .Columns}}<th title="{{.Meaning}}">{{.Name}}</th>{{end}}</tr></thead>
<tbody>
{{range .Rows}}<tr class="{{index . 0}}">{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</tbody>
</table>{{end}}`))

type table struct {
	Columns []column
	Rows    []row
}

// writeHTML writes the tables of writeText as a page.
func writeHTML(w io.Writer, l listing) error {
	return page.Execute(w, map[string]any{
		"Style": template.CSS(style), "All": table{columns, l.rows()}, "OfLanes": table{laneColumns, l.laneRows()},
		"Conns": len(l.Conns), "Listeners": len(l.Listeners), "Lanes": len(l.Lanes), "Time": l.Time.Format(time.RFC3339),
	})
}
