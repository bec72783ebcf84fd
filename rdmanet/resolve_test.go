package rdmanet

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
)

// TestAddressesAsTCP dials every kind of local address, from every kind there is, as TCP
// does beside it: both reach the listener or neither does, and the ends have the same addresses.
func TestAddressesAsTCP(t *testing.T) {
	onSoftware(t)
	type ends struct{ dialer, listener string }
	host := func(a net.Addr) string { return a.(*net.TCPAddr).IP.String() }
	// connect tells the addresses of both ends, none if the dial has failed.
	connect := func(t *testing.T, l net.Listener, dial func(address string) (net.Conn, error), to string) (e ends, err error) {
		_, port, _ := net.SplitHostPort(l.Addr().String())
		c, err := dial(to + ":" + port)
		if err != nil {
			return e, err
		}
		defer c.Close()
		s, err := l.Accept()
		require.NoError(t, err)
		defer s.Close()
		require.Equal(t, c.LocalAddr().String(), s.RemoteAddr().String())
		require.Equal(t, c.RemoteAddr().String(), s.LocalAddr().String())
		return ends{host(c.LocalAddr()), host(s.LocalAddr())}, nil
	}
	tried, reached := 0, 0
	for _, at := range []string{"127.0.0.1:0", "127.0.0.5:0", "[::1]:0", "0.0.0.0:0", "[::]:0", ":0"} {
		for _, listenV := range []string{"", "4", "6"} {
			tcp, err := net.Listen("tcp"+listenV, at)
			rdma, rerr := Listen("rdma"+listenV, at)
			require.Equal(t, err == nil, rerr == nil, "listen on %s, version %q: %v, %v", at, listenV, err, rerr)
			if err != nil {
				continue
			}
			for _, to := range []string{"", "0.0.0.0", "[::]", "127.0.0.1", "127.0.0.5", "127.0.0.7", "[::1]", "[::ffff:127.0.0.1]", "localhost"} {
				for _, dialV := range []string{"", "4", "6"} {
					for _, from := range []string{"", "127.0.0.1", "127.0.0.6", "::1", "0.0.0.0", "::"} {
						var src net.Addr
						if from != "" {
							src = &net.TCPAddr{IP: net.ParseIP(from)}
						}
						want, err := connect(t, tcp, func(a string) (net.Conn, error) {
							return (&net.Dialer{LocalAddr: src, Timeout: lasting}).Dial("tcp"+dialV, a)
						}, to)
						got, rerr := connect(t, rdma, func(a string) (net.Conn, error) {
							return (&Dialer{LocalAddr: src, Timeout: lasting}).Dial("rdma"+dialV, a)
						}, to)
						what := []any{"listen on %s, version %q; dial %q, version %q, from %q: %v, %v", at, listenV, to, dialV, from, err, rerr}
						require.Equal(t, err == nil, rerr == nil, what...)
						require.Equal(t, want, got, what...)
						tried++
						if err == nil {
							reached++
						}
					}
				}
			}
			require.NoError(t, tcp.Close())
			require.NoError(t, rdma.Close())
		}
	}
	require.Greater(t, reached, tried/8, "of %d", tried)
}

// A nameServer knows each name by the same addresses, and of IPv6 nothing; it keeps what it was asked for.
type nameServer struct {
	asked chan dnsmessage.Type
	addrs [][4]byte
}

func newNameServer(addrs ...[4]byte) *nameServer {
	return &nameServer{make(chan dnsmessage.Type, 64), addrs}
}

func (s *nameServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: s.dial}
}

// dial is the Dial of a Resolver.
func (s *nameServer) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		length := make([]byte, 2)
		for {
			if _, err := io.ReadFull(there, length); err != nil {
				return
			}
			query := make([]byte, binary.BigEndian.Uint16(length))
			if _, err := io.ReadFull(there, query); err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(query) != nil {
				return
			}
			q := m.Questions[0]
			s.asked <- q.Type
			m.Response, m.Additionals = true, nil
			if q.Type == dnsmessage.TypeA {
				header := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
				for _, a := range s.addrs {
					m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: a}})
				}
			}
			answer, err := m.AppendPack(make([]byte, 2))
			if err != nil {
				return
			}
			binary.BigEndian.PutUint16(answer, uint16(len(answer)-2))
			if _, err := there.Write(answer); err != nil {
				return
			}
		}
	}()
	return here, nil
}

// TestLookupOfOneVersion: on a network of IPv4 nobody is asked for addresses of IPv6, whose answer may never
// come, as package net does not.
func TestLookupOfOneVersion(t *testing.T) {
	onSoftware(t)
	for network, want := range map[string][]dnsmessage.Type{
		"tcp":   {dnsmessage.TypeA, dnsmessage.TypeAAAA},
		"tcp4":  {dnsmessage.TypeA},
		"rdma4": {dnsmessage.TypeA},
	} {
		l, err := Listen(network, "127.0.0.1:0")
		require.NoError(t, err)
		_, port, err := net.SplitHostPort(l.Addr().String())
		require.NoError(t, err)
		server := newNameServer([4]byte{127, 0, 0, 1})
		d := Dialer{Resolver: server.resolver(), Logger: quiet}
		c, err := d.Dial(network, "host.example.:"+port)
		require.NoError(t, err, network)
		require.NoError(t, c.Close())
		require.NoError(t, l.Close())
		close(server.asked)
		var asked []dnsmessage.Type
		for kind := range server.asked {
			asked = append(asked, kind)
		}
		slices.Sort(asked)
		require.Equal(t, want, slices.Compact(asked), network)
	}
}
