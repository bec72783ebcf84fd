package main

import (
	"bytes"
	"errors"
)

// The table stands between these two lines; what is between them is written by make bench.
const (
	beginMarker = "<!-- table: begin; written by make bench -->\n"
	endMarker   = "<!-- table: end -->\n"
)

// insert puts text between the markers of a page.
func insert(page, text []byte) ([]byte, error) {
	head, rest, ok := bytes.Cut(page, []byte(beginMarker))
	if !ok {
		return nil, errors.New("it has no line " + beginMarker[:len(beginMarker)-1])
	}
	_, tail, ok := bytes.Cut(rest, []byte(endMarker))
	if !ok {
		return nil, errors.New("it has no line " + endMarker[:len(endMarker)-1] + " after the first marker")
	}
	return bytes.Join([][]byte{head, []byte(beginMarker), []byte("\n"), text, []byte("\n"), []byte(endMarker), tail}, nil), nil
}
