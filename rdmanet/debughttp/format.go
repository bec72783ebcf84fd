package debughttp

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

type format string

const (
	formatText format = "text"
	formatHTML format = "html"
	formatJSON format = "json"
)

// formats are the choices, the one that is taken if the client does not care first.
var formats = []format{formatText, formatHTML, formatJSON}

func (f format) mediaType() string {
	switch f {
	case formatHTML:
		return "text/html"
	case formatJSON:
		return "application/json"
	}
	return "text/plain"
}

func (f format) contentType() string {
	if f == formatJSON {
		return f.mediaType()
	}
	return f.mediaType() + "; charset=utf-8"
}

// formatOf is what the request asks for; false for a format that there is not.
func formatOf(r *http.Request) (format, bool) {
	if name := r.URL.Query().Get("format"); name != "" {
		for _, f := range formats {
			if name == string(f) {
				return f, true
			}
		}
		return "", false
	}
	return accepted(strings.Join(r.Header.Values("Accept"), ",")), true
}

// accepted is the format that the client likes best (RFC 9110, section 12.5.1), text if
// it likes none.
func accepted(accept string) format {
	best, most := formatText, 0.0
	for _, f := range formats {
		if q := quality(accept, f.mediaType()); q > most {
			best, most = f, q
		}
	}
	return best
}

// quality is the weight that accept gives a media type: that of the range which names
// it most exactly.
func quality(accept, mediaType string) (q float64) {
	if accept == "" {
		return 1
	}
	family, _, _ := strings.Cut(mediaType, "/")
	exact := 0
	for part := range strings.SplitSeq(accept, ",") {
		name, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		match := 0
		switch name {
		case mediaType:
			match = 3
		case family + "/*":
			match = 2
		case "*/*":
			match = 1
		}
		if match <= exact {
			continue
		}
		exact, q = match, 1
		if weight, given := params["q"]; given {
			if q, err = strconv.ParseFloat(weight, 64); err != nil || !(q >= 0 && q <= 1) {
				q = 0
			}
		}
	}
	return q
}
