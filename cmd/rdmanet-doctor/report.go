package main

import (
	"fmt"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// formatVersion is the version of the JSON, which main.go documents.
const formatVersion = 2

// report is what the doctor found.
type report struct {
	Version int      `json:"version"`
	System  string   `json:"system"`
	OK      bool     `json:"ok"`
	Checks  []check  `json:"checks"`
	Devices []device `json:"devices"`
}

// status is the outcome of a check.
type status string

const (
	statusOK   status = "ok"
	statusNote status = "note" // worth knowing, but nothing failed
	statusFail status = "fail"
)

// check is the outcome of one check.
type check struct {
	Name    string `json:"name"`
	Subject string `json:"subject,omitempty"`
	Status  status `json:"status"`
	Detail  string `json:"detail"`
	// Fix is the one line that fixes what is wrong: most often a command.
	Fix string `json:"fix,omitempty"`
}

// topic makes the checks of one name and subject.
type topic struct{ name, subject string }

func (t topic) ok(format string, args ...any) check {
	return check{t.name, t.subject, statusOK, fmt.Sprintf(format, args...), ""}
}

// note may have no line that fixes: pass "".
func (t topic) note(fix, format string, args ...any) check {
	return check{t.name, t.subject, statusNote, fmt.Sprintf(format, args...), fix}
}

func (t topic) fail(fix, format string, args ...any) check {
	return check{t.name, t.subject, statusFail, fmt.Sprintf(format, args...), fix}
}

// device is a rdmanet.Device for JSON.
type device struct {
	Name         string   `json:"name"`
	Driver       string   `json:"driver"`
	Transport    string   `json:"transport"`
	NodeGUID     string   `json:"node_guid"`
	Firmware     string   `json:"firmware"`
	Capabilities []string `json:"capabilities"`
	MaxQP        int      `json:"max_qp"`
	MaxCQ        int      `json:"max_cq"`
	MaxMR        int      `json:"max_mr"`
	Addresses    []string `json:"addresses"`
	Error        string   `json:"error,omitempty"`
	Ports        []port   `json:"ports"`
}

type port struct {
	Number    uint8  `json:"number"`
	State     string `json:"state"`
	LinkLayer string `json:"link_layer"`
	ActiveMTU int    `json:"active_mtu"`
	MaxMTU    int    `json:"max_mtu"`
	LID       uint16 `json:"lid,omitempty"`
	GIDs      []gid  `json:"gids"`
}

type gid struct {
	Index   int    `json:"index"`
	GID     string `json:"gid"`
	Type    string `json:"type"`
	NetDev  string `json:"netdev,omitempty"`
	Address string `json:"address,omitempty"`
}

// newDevice copies what the library says; lists that are empty are not null.
func newDevice(d rdmanet.Device) device {
	out := device{
		Name: d.Name, Driver: d.Driver, Transport: d.Transport.String(), NodeGUID: d.NodeGUID.String(), Firmware: d.Firmware,
		Capabilities: append([]string{}, d.Caps.Names()...), MaxQP: d.MaxQP, MaxCQ: d.MaxCQ, MaxMR: d.MaxMR, Addresses: []string{}, Ports: []port{},
	}
	for _, a := range d.Addrs {
		out.Addresses = append(out.Addresses, a.String())
	}
	if d.Err != nil {
		out.Error = oneLine(d.Err)
	}
	for _, p := range d.Ports {
		to := port{
			Number: p.Number, State: p.State.String(), LinkLayer: p.LinkLayer.String(),
			ActiveMTU: p.ActiveMTU, MaxMTU: p.MaxMTU, LID: p.LID, GIDs: []gid{},
		}
		for _, g := range p.GIDs {
			e := gid{Index: g.Index, GID: g.GID.String(), Type: g.Type.String(), NetDev: g.NetDev}
			if g.Addr.IsValid() {
				e.Address = g.Addr.String()
			}
			to.GIDs = append(to.GIDs, e)
		}
		out.Ports = append(out.Ports, to)
	}
	return out
}
