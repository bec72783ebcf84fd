package bench

import (
	"crypto/tls"
	"net/http"
	"strconv"
	"strings"
)

// httpHost is the name of every page server.
const httpHost = "bench.test"

// pageServer serves every protocol.
func pageServer(config *tls.Config) *http.Server {
	s := &http.Server{
		Handler:   http.HandlerFunc(servePage),
		TLSConfig: config.Clone(), // which it adds to
		Protocols: new(http.Protocols),
	}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	return s
}

var page = make([]byte, 1<<20)

// servePage answers /N with N bytes.
func servePage(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
	if err != nil || n > len(page) {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(n))
	_, _ = w.Write(page[:n])
}
