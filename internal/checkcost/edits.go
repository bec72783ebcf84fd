package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// An edit takes one check out of a file. old is there exactly once.
type edit struct{ file, old, new string }

// edits are the checks of what a peer says and writes that every message, or every
// credit, goes through. What only a handshake meets is not among them. Nor are the
// bounds that Go itself checks: nobody can do without these.
var edits = []edit{
	{"ring/doorbell.go", "if d.Kind == KindData && d.Len-1 < MaxSize {", "if d.Kind == KindData {"},
	{"ring/doorbell.go", "if d.Kind <= KindData || d.Kind > KindKeepAlive || d.Len != 0 || d.Grown {", "if false {"},
	{"ring/receiver.go", "if d.Grown || d.Kind != KindData || uint64(d.Len)-1 >= uint64(r.size)-(r.received-r.consumed) {", "if d.Grown {"},
	{"ring/sender.go", "if c.Consumed-s.consumed > s.sent-s.consumed {", "if false {"},
	{"ring/sender.go", "if open := int64(int32(s.posted - s.messages)); open+int64(c.Reposted-s.posted) > int64(s.depth) {", "if false {"},
	{"ring/sender.go", "if c.Size != s.granted {\n\t\tif err", "if false {\n\t\tif err"},
	{"rdmanet/progress.go", "if !r.s.term.peerMaySay(bell.Kind) {", "if false {"},
	{"internal/verbs/soft/qp_recv.go", "if r == nil {\n\t\t\t\tq.violation", "if false {\n\t\t\t\tq.violation"},
	{"internal/verbs/soft/queue.go", "if left > uint32(o.mask)+1 {", "if false {"},
	{"internal/verbs/soft/qp_onesided.go", "if st.access()&need == 0 {\n\t\treturn nil, failed(verbs.WCRemInvReqErr)", "if false {\n\t\treturn nil, failed(verbs.WCRemInvReqErr)"},
	{"internal/verbs/soft/qp_onesided.go", "if m.access&need == 0 || off > uint64(len(m.data)) || uint64(n) > uint64(len(m.data))-off {", "if false {"},
}

// writeOverlay writes the files of the module at root, without their checks, to dir, and
// the description of them that go build -overlay takes. It returns the latter's name.
func writeOverlay(root, dir string) (string, error) {
	sources := map[string]string{}
	for _, e := range edits {
		path := filepath.Join(root, e.file)
		if sources[path] == "" {
			b, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			sources[path] = string(b)
		}
		if n := strings.Count(sources[path], e.old); n != 1 {
			return "", fmt.Errorf("%s has %d times, not once:\n%s", e.file, n, e.old)
		}
		sources[path] = strings.Replace(sources[path], e.old, e.new, 1)
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for path, source := range sources {
		edited := filepath.Join(dir, fmt.Sprintf("%d.go", len(overlay.Replace)))
		if err := os.WriteFile(edited, []byte(source), 0o644); err != nil {
			return "", err
		}
		overlay.Replace[path] = edited
	}
	b, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, b, 0o644)
}
