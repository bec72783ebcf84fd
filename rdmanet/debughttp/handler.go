// Package debughttp shows a process's RDMA connections over HTTP, as ss(8) shows its
// TCP connections:
//
//	http.Handle("/debug/rdmanet", debughttp.Handler())
//
// It is a package of its own so that package rdmanet does not import net/http.
package debughttp

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// A listing is what there is at one moment.
type listing struct {
	Time      time.Time
	Listeners []rdmanet.ListenerInfo
	Conns     []rdmanet.ConnInfo
	Lanes     []rdmanet.LaneInfo
}

func now() listing {
	return listing{Time: time.Now(), Listeners: rdmanet.Listeners(), Conns: rdmanet.Conns(), Lanes: rdmanet.Lanes()}
}

// Handler returns a handler that lists the listeners and connections of this process:
// state, addresses, device, how full the rings and queues are, how often and for how
// long Writes waited, age. Below are the lanes that carry the connections. The listing is
// plain text, HTML or JSON, by the parameter format (text, html, json) or else by what the
// client accepts: a browser gets HTML, curl text.
//
// It changes nothing and takes no parameters but format. It tells who is connected to
// whom, so it belongs where net/http/pprof does: on an address that strangers do not
// reach.
func Handler() http.Handler { return handler(now) }

type handler func() listing

func (list handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Accept")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	f, ok := formatOf(r)
	if !ok {
		http.Error(w, "format is text, html or json", http.StatusBadRequest)
		return
	}
	h.Set("Content-Type", f.contentType())
	if r.Method == http.MethodHead {
		return
	}
	// A client that has gone is the only one that could be told of an error.
	switch f {
	case formatHTML:
		h.Set("Content-Security-Policy", contentSecurityPolicy)
		_ = writeHTML(w, list())
	case formatJSON:
		enc := json.NewEncoder(w)
		enc.SetIndent("", "\t")
		_ = enc.Encode(list())
	default:
		_ = writeText(w, list())
	}
}
