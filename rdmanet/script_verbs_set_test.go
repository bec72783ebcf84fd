package rdmanet

import (
	"net"
	"time"
)

func init() {
	scriptVerbs["set"] = scriptSet
	scriptVerbs["deadline"] = scriptDeadline
	scriptVerbs["rdeadline"] = scriptHalfDeadline(net.Conn.SetReadDeadline)
	scriptVerbs["wdeadline"] = scriptHalfDeadline(net.Conn.SetWriteDeadline)
}

// scriptSet: NAME OPTION VALUE
func scriptSet(w *world, a []string) (string, error) {
	c := w.tcpLike(a[0])
	switch a[1] {
	case "linger":
		return "", c.SetLinger(number(a[2]))
	case "rbuf":
		return "", c.SetReadBuffer(number(a[2]))
	case "wbuf":
		return "", c.SetWriteBuffer(number(a[2]))
	case "nodelay":
		return "", c.SetNoDelay(a[2] == "true")
	case "keepalive":
		return "", c.SetKeepAlive(a[2] == "true")
	case "keepaliveperiod":
		return "", c.SetKeepAlivePeriod(duration(a[2]))
	case "keepaliveconfig":
		return "", c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: a[2] == "true"})
	case "keepaliveidle":
		return "", c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: duration(a[2])})
	case "keepaliveinterval":
		return "", c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Interval: duration(a[2])})
	case "keepalivecount":
		return "", c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Count: number(a[2])})
	}
	panic("set " + a[1])
}

func duration(word string) time.Duration {
	d, err := time.ParseDuration(word)
	if err != nil {
		panic(err) // the script is wrong
	}
	return d
}

// instant is "past", "zero" or a duration from now.
func instant(word string) time.Time {
	switch word {
	case "past":
		return time.Unix(1, 0)
	case "zero":
		return time.Time{}
	}
	return time.Now().Add(duration(word))
}

// deadline is instant for a deadline, and remembers when one was set that is near.
func (w *world) deadline(word string) time.Time {
	now, at := time.Now(), instant(word)
	if at.Before(now) || at.After(now.Add(time.Minute)) {
		return at
	}
	w.timed = now
	return now.Add(slowly(duration(word)))
}

// scriptDeadline sets that of a connection or of a listener.
func scriptDeadline(w *world, a []string) (string, error) {
	if c := w.conn(a[0]); c != nil {
		return "", c.SetDeadline(w.deadline(a[1]))
	}
	return "", w.listener(a[0]).(interface{ SetDeadline(time.Time) error }).SetDeadline(w.deadline(a[1]))
}

func scriptHalfDeadline(set func(net.Conn, time.Time) error) verb {
	return func(w *world, a []string) (string, error) { return "", set(w.conn(a[0]), w.deadline(a[1])) }
}
