package verbs

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// tableContext has ports of one GID table.
type tableContext struct {
	Context
	gids  []GIDEntry
	layer LinkLayer
}

func (c tableContext) QueryPort(uint8) (PortAttr, error) {
	return PortAttr{State: PortActive, GIDTblLen: len(c.gids), LinkLayer: c.layer}, nil
}

func (c tableContext) QueryGID(port uint8, i int) (GIDEntry, error) {
	g := c.gids[i]
	g.Port, g.Index = port, i
	return g, nil
}

func gidOf(addr string) GID { return GIDFromAddr(netip.MustParseAddr(addr)) }

var tableOfRoCE = tableContext{layer: LinkLayerEthernet, gids: []GIDEntry{
	{GID: gidOf("fe80::1"), Type: GIDTypeRoCEv1},
	{GID: gidOf("fe80::1"), Type: GIDTypeRoCEv2},
	{GID: gidOf("10.0.0.1"), Type: GIDTypeRoCEv1},
	{GID: gidOf("10.0.0.1"), Type: GIDTypeRoCEv2},
}}

func TestAHFromWC(t *testing.T) {
	for _, c := range []struct {
		from, to string
		index    int
	}{{"10.0.0.9", "10.0.0.1", 3}, {"fe80::9", "fe80::1", 1}} {
		sent := AHAttr{DGID: gidOf(c.to), TrafficClass: 0x68, HopLimit: 77, PortNum: 1}
		if !sent.DGID.Addr().Is4() {
			sent.FlowLabel = 0xabcde
		}
		grh := AppendGRH(nil, &sent, gidOf(c.from), 5)
		require.Len(t, grh, GRHSize)
		wc := WC{Flags: WCGRH, SL: 3}
		back, err := AHFromWC(tableOfRoCE, 1, &wc, append(grh, "more"...))
		require.NoError(t, err)
		require.Equal(t, AHAttr{
			DGID: gidOf(c.from), SGIDIndex: c.index, SL: 3, PortNum: 1, HopLimit: 77, TrafficClass: 0x68, FlowLabel: sent.FlowLabel, IsGlobal: true,
		}, back)

		_, err = AHFromWC(tableOfRoCE, 1, &WC{}, grh)
		require.ErrorIs(t, err, ErrInvalid, "without WCGRH nothing precedes the data")
		_, err = AHFromWC(tableContext{layer: LinkLayerEthernet, gids: tableOfRoCE.gids[:1]}, 1, &wc, grh)
		require.ErrorIs(t, err, ErrInvalid, "to another port")
	}
}

// Between two ports of an InfiniBand subnet there need be no header.
func TestAHFromWCInfiniBand(t *testing.T) {
	ctx := tableContext{layer: LinkLayerInfiniBand, gids: []GIDEntry{{GID: gidOf("fe80::1"), Type: GIDTypeIB}}}
	a, err := AHFromWC(ctx, 2, &WC{SLID: 17, SL: 4}, nil)
	require.NoError(t, err)
	require.Equal(t, AHAttr{DLID: 17, SL: 4, PortNum: 2}, a)
	grh := AppendGRH(nil, &AHAttr{DGID: gidOf("fe80::1")}, gidOf("fe80::9"), 0)
	grh[6] = grhNextBTH
	a, err = AHFromWC(ctx, 2, &WC{SLID: 17, Flags: WCGRH}, grh)
	require.NoError(t, err)
	require.Equal(t, AHAttr{DGID: gidOf("fe80::9"), DLID: 17, PortNum: 2, HopLimit: bringUpHopLimit, IsGlobal: true}, a)
}

// An IPv4 header has a checksum that is right; soft-RoCE leaves it 0.
func TestIPv4Header(t *testing.T) {
	grh := AppendGRH(nil, &AHAttr{DGID: gidOf("10.0.0.1"), HopLimit: 64}, gidOf("10.0.0.9"), 100)
	require.Zero(t, ipv4Checksum(grh[20:]))
	require.EqualValues(t, 20+8+12+8+100+4, int(grh[22])<<8|int(grh[23]))
	require.True(t, isIPv4Header(grh[20:], true))
	grh[30], grh[31] = 0, 0
	require.False(t, isIPv4Header(grh[20:], true))
	require.True(t, isIPv4Header(grh[20:], false))
}

func FuzzAHFromWC(f *testing.F) {
	f.Add(uint8(1), AppendGRH(nil, &AHAttr{DGID: gidOf("10.0.0.1")}, gidOf("10.0.0.9"), 0))
	f.Add(uint8(4), AppendGRH(nil, &AHAttr{DGID: gidOf("fe80::1")}, gidOf("fe80::9"), 0))
	f.Fuzz(func(t *testing.T, flags uint8, grh []byte) {
		a, err := AHFromWC(tableOfRoCE, 1, &WC{Flags: WCFlags(flags)}, grh)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		require.Contains(t, string(grh[20:GRHSize]), string(tableOfRoCE.gids[a.SGIDIndex].GID[12:]), "to this port")
		require.True(t, a.IsGlobal)
	})
}
