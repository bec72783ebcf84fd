//go:build linux && (amd64 || arm64)

package soft

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/stretchr/testify/require"
)

func testREQ() connMsg {
	return connMsg{
		param: verbs.ConnParam{
			PrivateData: []byte("hello"), ResponderResources: 1, InitiatorDepth: 2, FlowControl: true,
			RetryCount: 3, RNRRetryCount: 7, SRQ: true, QPNum: 0x123456,
		},
		src:   netip.MustParseAddrPort("127.0.0.1:40000"),
		dst:   netip.MustParseAddrPort("127.0.0.2:80"),
		tos:   0x68,
		offer: []byte("offer"),
	}
}

func TestMessagesRoundTrip(t *testing.T) {
	req := testREQ()
	got, err := parseREQ(appendREQ(nil, &req))
	require.NoError(t, err)
	require.Equal(t, req, got)

	req.src, req.dst = netip.MustParseAddrPort("[fe80::1%3]:1"), netip.MustParseAddrPort("[::1]:65535")
	req.param.PrivateData, req.offer = nil, []byte{}
	got, err = parseREQ(appendREQ(nil, &req))
	require.NoError(t, err)
	require.Equal(t, req, got)

	rep := connMsg{param: testREQ().param, offer: []byte("answer")}
	rep.param.RetryCount = 0 // the dialer's to say
	got, err = parseREP(appendREP(nil, &rep))
	require.NoError(t, err)
	require.Equal(t, rep, got)

	version, reason, private, err := parseREJ(appendREJ(nil, verbs.RejectConsumer, []byte("no")))
	require.NoError(t, err)
	require.EqualValues(t, wireVersion, version)
	require.Equal(t, verbs.RejectConsumer, reason)
	require.Equal(t, "no", string(private))
}

func TestMessagesOfWrongLength(t *testing.T) {
	req, rep := testREQ(), connMsg{offer: []byte("answer")}
	parse := map[string]func([]byte) error{
		string(appendREQ(nil, &req)):                               func(b []byte) error { _, err := parseREQ(b); return err },
		string(appendREP(nil, &rep)):                               func(b []byte) error { _, err := parseREP(b); return err },
		string(appendREJ(nil, verbs.RejectConsumer, []byte("no"))): func(b []byte) error { _, _, _, err := parseREJ(b); return err },
		string([]byte{msgRTU, wireVersion}):                        func(b []byte) error { return checkSignal(b, msgRTU) },
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
		"type":          func(b []byte) { b[0] = msgREP },
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
		b := appendREQ(nil, &req)
		spoil(b)
		_, err := parseREQ(b)
		require.ErrorIs(t, err, verbs.ErrProtocol, name)
	}
}

func TestMessageOfAnotherVersion(t *testing.T) {
	req := testREQ()
	b := appendREQ(nil, &req)
	b[1] = 9
	_, err := parseREQ(b)
	require.Equal(t, errVersion(9), err)
	require.ErrorIs(t, err, verbs.ErrProtocol)

	// A REJ is understood whoever sends it.
	b = appendREJ(nil, rejectUnsupported, nil)
	b[1] = 9
	version, _, _, err := parseREJ(b)
	require.NoError(t, err)
	require.EqualValues(t, 9, version)
}

func FuzzMessages(f *testing.F) {
	req, rep := testREQ(), connMsg{offer: []byte("answer")}
	f.Add(appendREQ(nil, &req))
	f.Add(appendREP(nil, &rep))
	f.Add(appendREJ(nil, verbs.RejectConsumer, []byte("no")))
	f.Add([]byte{msgRTU, wireVersion})
	f.Fuzz(func(t *testing.T, b []byte) {
		// What parses is the only spelling of what it means.
		if m, err := parseREQ(b); err == nil && !bytes.Equal(b, appendREQ(nil, &m)) {
			t.Errorf("REQ %x became %x", b, appendREQ(nil, &m))
		}
		if m, err := parseREP(b); err == nil && !bytes.Equal(b, appendREP(nil, &m)) {
			t.Errorf("REP %x became %x", b, appendREP(nil, &m))
		}
		if v, r, p, err := parseREJ(b); err == nil && v == wireVersion && !bytes.Equal(b, appendREJ(nil, r, p)) {
			t.Errorf("REJ %x became %x", b, appendREJ(nil, r, p))
		}
	})
}
