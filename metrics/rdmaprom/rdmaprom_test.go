package rdmaprom

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// full is statistics in which every number differs.
func full(t *testing.T) rdmanet.Stats {
	t.Helper()
	s := rdmanet.Stats{
		Devices:    []rdmanet.DeviceStats{{Device: "soft0", Errors: map[string]uint64{"ECONNRESET": 501, "ETIMEDOUT": 506, "ECONNABORTED": 507, "ENODEV": 508}, FailedWRs: map[string]uint64{"WR_FLUSH_ERR": 502}}},
		DialErrors: map[string]uint64{"timeout": 503},

		DialFallbacks: map[string]uint64{"no device": 504}, ListenFallbacks: map[string]uint64{"denied": 505},
	}
	fill := uint64(600) // what would be there with 0
	for _, m := range []struct {
		of       map[string]uint64
		expected []string
	}{{s.Devices[0].FailedWRs, statuses}, {s.DialErrors, dialFailures}, {s.DialFallbacks, dialFallbacks}, {s.ListenFallbacks, listenFallbacks}} {
		for _, key := range m.expected {
			if m.of[key] == 0 {
				m.of[key] = fill
				fill++
			}
		}
	}
	next := int64(1)
	number(reflect.ValueOf(&s).Elem(), &next)
	return s
}

// number gives every number in v one of its own.
func number(v reflect.Value, next *int64) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			number(v.Field(i), next)
		}
	case reflect.Slice:
		for i := range v.Len() {
			number(v.Index(i), next)
		}
	case reflect.Uint64:
		v.SetUint(uint64(*next))
		*next++
	case reflect.Int, reflect.Int64:
		n := *next
		if v.Type() == reflect.TypeFor[time.Duration]() {
			n *= int64(time.Second)
		}
		v.SetInt(n)
		*next++
	}
}

// TestComplete checks that every number of the statistics is in some metric.
func TestComplete(t *testing.T) {
	s := full(t)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector{func() rdmanet.Stats { return s }})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[float64]string{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			if other := seen[value]; other != "" {
				t.Errorf("%v is in %s and in %s", value, other, family.GetName())
			}
			seen[value] = family.GetName()
		}
	}
	for _, value := range []float64{501, 502, 503, 504, 505, 506, 507, 508} {
		if seen[value] == "" {
			t.Errorf("the %v of a map is in no metric", value)
		}
	}
	check(t, reflect.ValueOf(s), "Stats", seen)
}

// notShown are what other metrics tell: sizes of the peers' rings are in the peers'
// processes, and each request has an outcome.
var notShown = map[string]bool{"WriteBuffer": true, "Requests": true}

func check(t *testing.T, v reflect.Value, name string, seen map[float64]string) {
	var value float64
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			check(t, v.Field(i), v.Type().Field(i).Name, seen)
		}
		return
	case reflect.Slice:
		for i := range v.Len() {
			check(t, v.Index(i), name, seen)
		}
		return
	case reflect.Uint64:
		value = float64(v.Uint())
	case reflect.Int, reflect.Int64:
		value = float64(v.Int())
		if d, ok := v.Interface().(time.Duration); ok {
			value = d.Seconds()
		}
	default:
		return
	}
	if seen[value] == "" && !notShown[name] {
		t.Errorf("%s is in no metric", name)
	}
}

// TestLint checks names and help texts by Prometheus's own rules.
func TestLint(t *testing.T) {
	s := full(t)
	problems, err := testutil.CollectAndLint(collector{func() rdmanet.Stats { return s }})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestDocumented looks for every metric in the table of docs/OPERATIONS.md.
func TestDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	s := full(t)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{func() rdmanet.Stats { return s }})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if !strings.Contains(string(doc), "`"+family.GetName()+"`") {
			t.Errorf("%s is not described", family.GetName())
		}
	}
}

// TestErrorsBeginAtZero: the alarm of docs/OPERATIONS.md sees the first failure of a device's connections, as
// the counters that it looks at are there before, once each.
func TestErrorsBeginAtZero(t *testing.T) {
	s := rdmanet.Stats{Devices: []rdmanet.DeviceStats{{Device: "soft0"}}}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector{func() rdmanet.Stats { return s }})
	web := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	defer web.Close()
	const counter = `rdmanet_connection_errors_total{device="soft0",errno=`
	all := func(n string) []string {
		return []string{counter + `"ECONNRESET"} ` + n, counter + `"ETIMEDOUT"} 0`, counter + `"ECONNABORTED"} 0`, counter + `"ENODEV"} 0`}
	}
	has(t, scrape(t, web.URL), all("0")...)
	s.Devices[0].Errors = map[string]uint64{"ECONNRESET": 1, "EPIPE": 2}
	has(t, scrape(t, web.URL), append(all("1"), counter+`"EPIPE"} 2`)...)
}

// TestFailuresBeginAtZero: what fails as a rule has its counter before it does, once each, and another
// has one from the first time on.
func TestFailuresBeginAtZero(t *testing.T) {
	s := rdmanet.Stats{Devices: []rdmanet.DeviceStats{{Device: "rxe0"}}}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector{func() rdmanet.Stats { return s }})
	web := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	defer web.Close()
	has(t, scrape(t, web.URL),
		`rdmanet_dial_errors_total{error="timeout"} 0`,
		`rdmanet_dial_errors_total{error="canceled"} 0`,
		`rdmanet_dial_errors_total{error="other"} 0`,
		`rdmanet_dial_errors_total{error="ECONNREFUSED"} 0`,
		`rdmanet_fallbacks_total{op="dial",reason="no device"} 0`,
		`rdmanet_fallbacks_total{op="dial",reason="version"} 0`,
		`rdmanet_fallbacks_total{op="dial",reason="failed"} 0`,
		`rdmanet_fallbacks_total{op="listen",reason="no device"} 0`,
		`rdmanet_fallbacks_total{op="listen",reason="resources"} 0`,
		`rdmanet_failed_work_requests_total{device="rxe0",status="RETRY_EXC_ERR"} 0`,
		`rdmanet_failed_work_requests_total{device="rxe0",status="WR_FLUSH_ERR"} 0`,
	)
	s.Devices[0].FailedWRs = map[string]uint64{"RETRY_EXC_ERR": 3, "FATAL_ERR": 1}
	s.DialErrors = map[string]uint64{"timeout": 4, "EPIPE": 1}
	s.DialFallbacks, s.ListenFallbacks = map[string]uint64{"version": 5}, map[string]uint64{"slow": 1}
	has(t, scrape(t, web.URL),
		`rdmanet_failed_work_requests_total{device="rxe0",status="RETRY_EXC_ERR"} 3`,
		`rdmanet_failed_work_requests_total{device="rxe0",status="WR_FLUSH_ERR"} 0`,
		`rdmanet_failed_work_requests_total{device="rxe0",status="FATAL_ERR"} 1`,
		`rdmanet_dial_errors_total{error="timeout"} 4`,
		`rdmanet_dial_errors_total{error="EPIPE"} 1`,
		`rdmanet_fallbacks_total{op="dial",reason="version"} 5`,
		`rdmanet_fallbacks_total{op="dial",reason="slow"} 0`,
		`rdmanet_fallbacks_total{op="listen",reason="slow"} 1`,
	)
}

// TestEveryReasonIsExpected: a reason that is new is shown at 0 as well.
func TestEveryReasonIsExpected(t *testing.T) {
	var all []string
	for r := rdmanet.FallbackReason(0); !strings.HasPrefix(r.String(), "reason "); r++ {
		all = append(all, r.String())
	}
	if !reflect.DeepEqual(all, dialFallbacks) {
		t.Errorf("the reasons are %q, not %q", all, dialFallbacks)
	}
}

// TestScrape sends bytes and scrapes them.
func TestScrape(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(NewCollector())
	l, err := rdmanet.Listen("rdma", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	client, err := rdmanet.Dial("rdma", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Write(make([]byte, 1234)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(server, make([]byte, 1234)); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	defer web.Close()
	has(t, scrape(t, web.URL),
		`rdmanet_connections{device="soft0",direction="accepted"} 1`,
		`rdmanet_connections{device="soft0",direction="dialled"} 1`,
		`rdmanet_read_bytes_total{device="soft0"} 1234`,
		`rdmanet_written_bytes_total{device="soft0"} 1234`,
		`rdmanet_listeners 1`,
		`rdmanet_links{device="soft0"} 2`,
		`rdmanet_handshakes_total{outcome="established"} 1`,
		`rdmanet_accepted_total{transport="rdma"} 1`,
	)
	for _, c := range []io.Closer{client, server, l} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	nobody, err := rdmanet.Listen("rdma", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := nobody.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := rdmanet.Dial("rdma", nobody.Addr().String()); err == nil {
		t.Fatal("nobody listens")
	}
	// What carried the connection may still be on its way out.
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if strings.Contains(scrape(t, web.URL), "\nrdmanet_registered_bytes 0\n") {
			break
		}
	}
	has(t, scrape(t, web.URL),
		`rdmanet_connections{device="soft0",direction="dialled"} 0`,
		`rdmanet_connections_opened_total{device="soft0",direction="dialled"} 1`,
		`rdmanet_read_bytes_total{device="soft0"} 1234`,
		`rdmanet_registered_bytes 0`,
		`rdmanet_dial_errors_total{error="ECONNREFUSED"} 1`,
	)
}

func scrape(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", resp.Status, body)
	}
	return string(body)
}

func has(t *testing.T, body string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+body, "\n"+line+"\n") {
			t.Errorf("%s\nis not in\n%s", line, body)
		}
	}
}
