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
	"os"
	"path/filepath"
	"time"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// A listing is what there is at one moment.
type listing struct {
	Time    time.Time
	Host    string
	Program string // the name of its file
	PID     int

	// MemoryInUse is what all rings and send buffers take, in bytes, of MemoryLimit.
	MemoryInUse, MemoryLimit int64

	Listeners []rdmanet.ListenerInfo
	Conns     []rdmanet.ConnInfo
	Lanes     []rdmanet.LaneInfo
}

func now() listing {
	l := listing{
		Time: time.Now(), PID: os.Getpid(), MemoryInUse: rdmanet.MemoryInUse(), MemoryLimit: rdmanet.SetMemoryLimit(-1),
		Listeners: rdmanet.Listeners(), Conns: rdmanet.Conns(), Lanes: rdmanet.Lanes(),
	}
	l.Host, _ = os.Hostname() // which may have none
	if len(os.Args) > 0 {
		l.Program = filepath.Base(os.Args[0])
	}
	return l
}

// Handler returns a handler that lists the listeners and connections of this process:
// state, addresses, device, how full the rings and queues are, how often and for how
// long Writes waited, age. Below are the lanes that carry the connections. The listing is
// plain text, HTML or JSON, by the parameter format (text, html, json) or else by what the
// client accepts: a browser gets HTML, curl text. JSON has the fields of
// rdmanet.ListenerInfo, ConnInfo and LaneInfo, durations in nanoseconds.
//
// These parameters choose what is listed, in every format:
//
//	q        words that a line must contain, in upper or lower case: an address, a state, a device
//	lane     the number of a lane: it and its connections
//	link     the number of a link: its lanes and their connections
//	refresh  HTML only: the seconds after which the page asks again, up to 3600
//
// A parameter that makes no sense is status 400.
//
// The page begins with what an operator should look at: connections that have failed or
// had their bytes changed, memory that is nearly used up, peers that take nothing, Writes
// that waited for half of the connection's life or longer, programs that do not read or do not
// accept, and dials that wait for a place. It needs no script and loads nothing.
//
// The handler changes nothing and may be called concurrently. It tells who is connected to
// whom, and the names of the host and the program, so it belongs where net/http/pprof does: on
// an address that strangers do not reach.
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
	q, err := parseQuery(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
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
		_ = writeHTML(w, list(), q)
	case formatJSON:
		enc := json.NewEncoder(w)
		enc.SetIndent("", "\t")
		_ = enc.Encode(q.apply(list()))
	default:
		_ = writeText(w, q.apply(list()))
	}
}
