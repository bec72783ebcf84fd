package cm

import (
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func sampleQPAddr() QPAddr {
	return QPAddr{
		GID: verbs.GIDFromAddr(netip.MustParseAddr("10.9.0.1")), GIDType: verbs.GIDTypeRoCEv2,
		QPN: 0x11, PSN: 0xabcdef, MTU: verbs.MTU4096, RdAtomic: 16,
	}
}

func ibQPAddr() QPAddr {
	return QPAddr{
		GID: verbs.GIDFromAddr(netip.MustParseAddr(portGID)), GIDType: verbs.GIDTypeIB, LID: 17,
		QPN: 0xfffffe, PSN: bits24, MTU: verbs.MTU256,
	}
}

func marshalQPAddr(t testing.TB, a QPAddr) []byte {
	t.Helper()
	b, err := a.MarshalBinary()
	require.NoError(t, err)
	require.Len(t, b, QPAddrSize)
	return b
}

func TestQPAddrRoundTrip(t *testing.T) {
	v1 := sampleQPAddr()
	v1.GIDType = verbs.GIDTypeRoCEv1
	v6 := sampleQPAddr()
	v6.GID = verbs.GIDFromAddr(netip.MustParseAddr("2001:db8::1"))
	v6.QPN, v6.PSN, v6.MTU = 2, 0, verbs.MTU512
	for _, a := range []QPAddr{sampleQPAddr(), v1, v6, ibQPAddr()} {
		got, err := ParseQPAddr(marshalQPAddr(t, a))
		require.NoError(t, err)
		require.Equal(t, a, got)
	}
	require.Equal(t, "QP 0x000011 at RoCE v2 10.9.0.1", sampleQPAddr().String())
	require.Equal(t, "QP 0xfffffe at IB fe80:0000:0000:0000:e61d:2d03:0008:1a01, LID 17", ibQPAddr().String())
}

func TestQPAddrIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*QPAddr)
		want   string
	}{
		"QPN 0":                 {func(a *QPAddr) { a.QPN = 0 }, "QPN 0x0"},
		"QPN 1":                 {func(a *QPAddr) { a.QPN = 1 }, "QPN 0x1"},
		"QPN of multicast":      {func(a *QPAddr) { a.QPN = 0xffffff }, "QPN 0xffffff"},
		"QPN of 25 bits":        {func(a *QPAddr) { a.QPN = 1<<24 + 5 }, "QPN 0x1000005"},
		"PSN of 25 bits":        {func(a *QPAddr) { a.PSN = 1 << 24 }, "PSN 0x1000000 of more than 24 bits"},
		"MTU 0":                 {func(a *QPAddr) { a.MTU = 0 }, "path MTU 0"},
		"MTU in bytes":          {func(a *QPAddr) { a.MTU = 6 }, "path MTU 6"},
		"GID type":              {func(a *QPAddr) { a.GIDType = 3 }, "GID type 3"},
		"no GID":                {func(a *QPAddr) { a.GID = verbs.GID{} }, "GID 0000"},
		"GID 0.0.0.0":           {func(a *QPAddr) { a.GID = verbs.GIDFromAddr(netip.IPv4Unspecified()) }, "ffff:0000:0000"},
		"GID 255.255.255.255":   {func(a *QPAddr) { a.GID = verbs.GIDFromAddr(broadcast) }, "ffff:ffff:ffff"},
		"GID of multicast":      {func(a *QPAddr) { a.GID[0] = 0xff }, "GID ff00"},
		"GID of IPv4 multicast": {func(a *QPAddr) { a.GID[12] = 224 }, "ffff:e009:0001"},
		"LID on RoCE":           {func(a *QPAddr) { a.LID = 7 }, "LID 0x7 of a port on RoCE v2"},
		"no LID":                {func(a *QPAddr) { *a = ibQPAddr(); a.LID = 0 }, "LID 0x0 of a port on InfiniBand"},
		"LID of multicast":      {func(a *QPAddr) { *a = ibQPAddr(); a.LID = 0xc000 }, "LID 0xc000"},
	} {
		t.Run(name, func(t *testing.T) {
			a := sampleQPAddr()
			c.change(&a)
			b, err := a.AppendBinary([]byte("x"))
			requireMalformedQPAddr(t, err, c.want)
			require.Equal(t, "x", string(b))
		})
	}

	good := marshalQPAddr(t, sampleQPAddr())
	with := func(offset int, c ...byte) []byte {
		b := slices.Clone(good)
		copy(b[offset:], c)
		return b
	}
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"nothing":            {nil, "0 bytes"},
		"seven bytes":        {good[:7], "7 bytes"},
		"cut off":            {good[:39], "cut off at 39 of 40"},
		"garbage behind":     {append(slices.Clone(good), 0), "1 bytes past its end"},
		"a handshake":        {with(3, 'N'), "begins with 52 44 4d 4e"},
		"version 0":          {with(4, 0), "versions 1 to 0"},
		"min version 0":      {with(5, 0), "versions 0 to 1"},
		"short length":       {with(6, 39), "length 39 in version 1"},
		"long length":        {append(with(6, 41), 0), "length 41 in version 1"},
		"GID type":           {with(7, 3), "GID type 3"},
		"QPN of 25 bits":     {with(11, 1), "QPN 0x1000011"},
		"PSN of 25 bits":     {with(15, 1), "PSN 0x1abcdef"},
		"MTU 0":              {with(34, 0), "path MTU 0"},
		"reserved":           {with(39, 1), "reserved bytes are not zero"},
		"shorter than its 2": {with(4, 2)[:20], "cut off at 20 of 40"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseQPAddr(c.b)
			requireMalformedQPAddr(t, err, c.want)
		})
	}
}

func requireMalformedQPAddr(t *testing.T, err error, want string) {
	t.Helper()
	var me *MalformedError
	require.ErrorAs(t, err, &me)
	require.ErrorIs(t, err, verbs.ErrProtocol)
	require.ErrorContains(t, err, want)
	require.ErrorContains(t, err, "cm: malformed QP address: ")
}

// A newer peer that still speaks version 1 is understood.
func TestQPAddrOfANewerPeer(t *testing.T) {
	b := append(marshalQPAddr(t, sampleQPAddr()), 9, 9, 9, 9)
	b[4], b[6], b[36] = 3, 44, 7
	got, err := ParseQPAddr(b)
	require.NoError(t, err)
	require.Equal(t, sampleQPAddr(), got)
	got, err = exchangeWith(t, b)
	require.NoError(t, err)
	require.Equal(t, sampleQPAddr(), got)

	// Of one that does not, nothing is looked at but its versions.
	newer := []byte{'R', 'D', 'M', 'Q', 4, 2, 0, 0xff}
	_, err = ParseQPAddr(newer)
	require.Equal(t, &VersionError{LocalMin: 1, LocalMax: 1, PeerMin: 2, PeerMax: 4}, err)
	_, err = exchangeWith(t, newer)
	require.ErrorIs(t, err, ErrVersion)
}

// exchangeWith exchanges an address with a peer that sends b and no more.
func exchangeWith(t *testing.T, b []byte) (QPAddr, error) {
	t.Helper()
	here, there := net.Pipe()
	defer here.Close()
	go func() {
		defer there.Close()
		got := make([]byte, QPAddrSize)
		if _, err := io.ReadFull(there, got); err == nil {
			_, _ = there.Write(b)
		}
	}()
	local := ibQPAddr()
	return ExchangeQPAddr(here, &local)
}

func TestExchangeQPAddr(t *testing.T) {
	good := marshalQPAddr(t, sampleQPAddr())
	got, err := exchangeWith(t, good)
	require.NoError(t, err)
	require.Equal(t, sampleQPAddr(), got)

	// What comes behind the address is left to others.
	got, err = exchangeWith(t, append(good, "and more"...))
	require.NoError(t, err)
	require.Equal(t, sampleQPAddr(), got)

	_, err = exchangeWith(t, nil)
	require.ErrorIs(t, err, io.EOF)
	_, err = exchangeWith(t, good[:5])
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, err = exchangeWith(t, good[:39])
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, err = exchangeWith(t, []byte("HTTP/1.1 400 Bad Request\r\n"))
	requireMalformedQPAddr(t, err, "it begins with 48 54 54 50")

	here, there := net.Pipe()
	require.NoError(t, there.Close())
	local := sampleQPAddr()
	_, err = ExchangeQPAddr(here, &local)
	require.ErrorIs(t, err, io.ErrClosedPipe)
	local.MTU = 0
	_, err = ExchangeQPAddr(here, &local)
	require.ErrorIs(t, err, verbs.ErrProtocol)
}

func FuzzParseQPAddr(f *testing.F) {
	f.Add(marshalQPAddr(f, sampleQPAddr()))
	f.Add(marshalQPAddr(f, ibQPAddr()))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := ParseQPAddr(b)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		// What was accepted can be sent, means the same, and is in bounds.
		again, err := ParseQPAddr(marshalQPAddr(t, a))
		require.NoError(t, err)
		require.Equal(t, a, again)
		require.LessOrEqual(t, a.QPN|a.PSN, uint32(bits24))
		require.NotZero(t, a.MTU.Bytes())
		require.False(t, a.GID.IsZero())
		require.Equal(t, a.GIDType == verbs.GIDTypeIB, a.LID != 0)
	})
}
