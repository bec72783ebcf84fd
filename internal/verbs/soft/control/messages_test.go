//go:build linux && (amd64 || arm64)

package control

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func testREQ() ConnMsg {
	return ConnMsg{
		Param: driver.ConnParam{
			PrivateData: []byte("hello"), ResponderResources: 1, InitiatorDepth: 2, FlowControl: true,
			RetryCount: 3, RNRRetryCount: 7, SRQ: true, QPNum: 0x123456,
		},
		Src:   netip.MustParseAddrPort("127.0.0.1:40000"),
		Dst:   netip.MustParseAddrPort("127.0.0.2:80"),
		TOS:   0x68,
		Offer: []byte("offer"),
	}
}

func TestMessagesRoundTrip(t *testing.T) {
	req := testREQ()
	got, err := ParseREQ(AppendREQ(nil, &req))
	require.NoError(t, err)
	require.Equal(t, req, got)

	req.Src, req.Dst = netip.MustParseAddrPort("[fe80::1%3]:1"), netip.MustParseAddrPort("[::1]:65535")
	req.Param.PrivateData, req.Offer = nil, []byte{}
	got, err = ParseREQ(AppendREQ(nil, &req))
	require.NoError(t, err)
	require.Equal(t, req, got)

	rep := ConnMsg{Param: testREQ().Param, Offer: []byte("answer")}
	rep.Param.RetryCount = 0 // the dialer's to say
	got, err = ParseREP(AppendREP(nil, &rep))
	require.NoError(t, err)
	require.Equal(t, rep, got)

	version, reason, private, err := ParseREJ(AppendREJ(nil, driver.RejectConsumer, []byte("no")))
	require.NoError(t, err)
	require.EqualValues(t, WireVersion, version)
	require.Equal(t, driver.RejectConsumer, reason)
	require.Equal(t, "no", string(private))
}

func TestVersionErrorText(t *testing.T) {
	require.EqualError(t, VersionError(3), "the peer speaks version 3 of the software device's protocol, this library speaks 4: update the older of the two")
}

func TestMessagesOfWrongLength(t *testing.T) {
	req, rep := testREQ(), ConnMsg{Offer: []byte("answer")}
	parse := map[string]func([]byte) error{
		string(AppendREQ(nil, &req)):                                func(b []byte) error { _, err := ParseREQ(b); return err },
		string(AppendREP(nil, &rep)):                                func(b []byte) error { _, err := ParseREP(b); return err },
		string(AppendREJ(nil, driver.RejectConsumer, []byte("no"))): func(b []byte) error { _, _, _, err := ParseREJ(b); return err },
		string([]byte{MsgRTU, WireVersion}):                         func(b []byte) error { return CheckSignal(b, MsgRTU) },
	}
	for msg, f := range parse {
		require.NoError(t, f([]byte(msg)))
		for n := range msg {
			require.ErrorIs(t, f([]byte(msg[:n])), verbs.ErrProtocol, "%q", msg[:n])
		}
		require.ErrorIs(t, f([]byte(msg+"x")), verbs.ErrProtocol)
	}
}

func TestREQOutOfRange(t *testing.T) {
	for name, spoil := range map[string]func(b []byte){
		"type":          func(b []byte) { b[0] = MsgREP },
		"flags":         func(b []byte) { b[2] = 8 },
		"retry":         func(b []byte) { b[5] = 8 },
		"rnr retry":     func(b []byte) { b[6] = 8 },
		"private data":  func(b []byte) { b[7] = 57 },
		"offer":         func(b []byte) { b[13] = 1 },
		"reserved":      func(b []byte) { b[15] = 1 },
		"source port":   func(b []byte) { b[36], b[37] = 0, 0 },
		"source pad":    func(b []byte) { b[39] = 1 },
		"source zone":   func(b []byte) { b[32] = 1 },
		"family":        func(b []byte) { b[16] = 0x20 },
		"no source":     func(b []byte) { clear(b[16:32]) },
		"dest port":     func(b []byte) { b[60], b[61] = 0, 0 },
		"dest reserved": func(b []byte) { b[62] = 1 },
	} {
		req := testREQ()
		b := AppendREQ(nil, &req)
		spoil(b)
		_, err := ParseREQ(b)
		require.ErrorIs(t, err, verbs.ErrProtocol, name)
	}
}

func TestMessageOfAnotherVersion(t *testing.T) {
	req := testREQ()
	b := AppendREQ(nil, &req)
	b[1] = 9
	_, err := ParseREQ(b)
	require.Equal(t, VersionError(9), err)
	require.ErrorIs(t, err, verbs.ErrProtocol)
	require.ErrorIs(t, err, verbs.ErrVersion)

	// A REJ is understood whoever sends it.
	b = AppendREJ(nil, RejectUnsupported, nil)
	b[1] = 9
	version, _, _, err := ParseREJ(b)
	require.NoError(t, err)
	require.EqualValues(t, 9, version)
}

func FuzzMessages(f *testing.F) {
	req, rep := testREQ(), ConnMsg{Offer: []byte("answer")}
	f.Add(AppendREQ(nil, &req))
	f.Add(AppendREP(nil, &rep))
	f.Add(AppendREJ(nil, driver.RejectConsumer, []byte("no")))
	f.Add([]byte{MsgRTU, WireVersion})
	f.Fuzz(func(t *testing.T, b []byte) {
		// What parses is the only spelling of what it means.
		if m, err := ParseREQ(b); err == nil && !bytes.Equal(b, AppendREQ(nil, &m)) {
			t.Errorf("REQ %x became %x", b, AppendREQ(nil, &m))
		}
		if m, err := ParseREP(b); err == nil && !bytes.Equal(b, AppendREP(nil, &m)) {
			t.Errorf("REP %x became %x", b, AppendREP(nil, &m))
		}
		if v, r, p, err := ParseREJ(b); err == nil && v == WireVersion && !bytes.Equal(b, AppendREJ(nil, r, p)) {
			t.Errorf("REJ %x became %x", b, AppendREJ(nil, r, p))
		}
	})
}
