package debughttp

import (
	"errors"
	"net/url"
	"strconv"
	"strings"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// A query is what a request asks to be shown, besides the format.
type query struct {
	text       string // words, each of which a row has to have
	lane, link uint64 // 0 for all
	refresh    int    // seconds after which the page asks again; 0 for never
}

// maxRefresh is an hour.
const maxRefresh = 3600

func parseQuery(values url.Values) (q query, err error) {
	q.text = strings.TrimSpace(values.Get("q"))
	for name, to := range map[string]*uint64{"lane": &q.lane, "link": &q.link} {
		if s := values.Get(name); s != "" {
			if *to, err = strconv.ParseUint(s, 10, 64); err != nil {
				return query{}, errors.New(name + " is a number")
			}
		}
	}
	if s := values.Get("refresh"); s != "" {
		if q.refresh, err = strconv.Atoi(s); err != nil || q.refresh < 0 || q.refresh > maxRefresh {
			return query{}, errors.New("refresh is a number of seconds, up to " + strconv.Itoa(maxRefresh))
		}
	}
	return q, nil
}

// filters reports whether the query leaves anything out.
func (q query) filters() bool { return q.text != "" || q.lane != 0 || q.link != 0 }

// values are the parameters that ask for q.
func (q query) values() url.Values {
	v := url.Values{}
	if q.text != "" {
		v.Set("q", q.text)
	}
	if q.lane != 0 {
		v.Set("lane", strconv.FormatUint(q.lane, 10))
	}
	if q.link != 0 {
		v.Set("link", strconv.FormatUint(q.link, 10))
	}
	if q.refresh != 0 {
		v.Set("refresh", strconv.Itoa(q.refresh))
	}
	return v
}

// apply returns the part of l that q asks for. A listener belongs to no lane.
func (q query) apply(l listing) listing {
	if !q.filters() {
		return l
	}
	words := strings.Fields(strings.ToLower(q.text))
	has := func(r row, cells []cell) bool { // what it shows as text, and in the page
		for _, c := range cells {
			r = append(r, c.Text)
		}
		text := strings.ToLower(strings.Join(r, " "))
		for _, w := range words {
			if !strings.Contains(text, w) {
				return false
			}
		}
		return true
	}
	all := l
	l.Listeners, l.Conns, l.Lanes = []rdmanet.ListenerInfo{}, []rdmanet.ConnInfo{}, []rdmanet.LaneInfo{}
	if q.lane == 0 && q.link == 0 {
		for i := range all.Listeners {
			if n := &all.Listeners[i]; has(listenerRow(n), listenerCells(n)) {
				l.Listeners = append(l.Listeners, *n)
			}
		}
	}
	for i := range all.Conns {
		if c := &all.Conns[i]; q.of(c.Lane, c.Link) && has(connRow(c, l.Time), connCells(c, l.Time)) {
			l.Conns = append(l.Conns, *c)
		}
	}
	for i := range all.Lanes {
		if n := &all.Lanes[i]; q.of(n.ID, n.Link) && has(laneRow(n, l.Time), laneCells(n, l.Time)) {
			l.Lanes = append(l.Lanes, *n)
		}
	}
	return l
}

func (q query) of(lane, link uint64) bool {
	return (q.lane == 0 || q.lane == lane) && (q.link == 0 || q.link == link)
}
