package rdmaexpvar

import (
	"encoding/json"
	"expvar"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// TestScrape sends bytes and looks for them at /debug/vars.
func TestScrape(t *testing.T) {
	Publish("rdmanet")
	l, err := rdmanet.Listen("rdma", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := rdmanet.Dial("rdma", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if _, err := client.Write(make([]byte, 1234)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(server, make([]byte, 1234)); err != nil {
		t.Fatal(err)
	}

	web := httptest.NewServer(expvar.Handler())
	defer web.Close()
	resp, err := http.Get(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var vars struct {
		RDMANet rdmanet.Stats `json:"rdmanet"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&vars); err != nil {
		t.Fatal(err)
	}
	s := vars.RDMANet
	if len(s.Devices) != 1 {
		t.Fatalf("devices: %+v", s.Devices)
	}
	d := s.Devices[0]
	if d.Device != "soft0" || d.BytesRead != 1234 || d.BytesWritten != 1234 || d.Dialled.Open != 1 || d.Accepted.Total != 1 {
		t.Errorf("%+v", d)
	}
	if s.Listeners != 1 || s.RegisteredBytes <= 0 || s.RegisteredLimit != rdmanet.SetMemoryLimit(-1) {
		t.Errorf("%+v", s)
	}
}
