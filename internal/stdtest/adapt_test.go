package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const adaptSource = `package PKG_test

type pair struct{ c, s *net.TCPConn }

type other struct{ *net.TCPConn }

func helper(f func(c *net.TCPConn)) {}

func TestA(t *testing.T) {
	helper(func(c *net.TCPConn) {})
	var p pair
	c, err := net.DialTCP("tcp", nil, addr)
	switch x.(type) {
	case *net.TCPConn:
	case *net.UDPConn:
	}
	var l = l.(*net.TCPListener)
}

func TestB(t *testing.T) {
	helper(func(c *net.TCPConn) {})
}

func TestC(t *testing.T) {
	var o other
	_ = c.(*net.TCPConn)
}
`

const adaptWant = `package PKG_test

type pair struct{ c, s net.StreamConn }

type other struct{ *net.TCPConn }

func helper(f func(c net.StreamConn)) {}

func TestA(t *testing.T) {
	helper(func(c net.StreamConn) {})
	var p pair
	c, err := net.DialStream("tcp", nil, addr)
	switch x.(type) {
	case net.StreamConn:
	case *net.UDPConn:
	}
	var l = l.(net.StreamListener)
}

func TestB(t *testing.T) {
	helper(func(c net.StreamConn) {})
}

func TestC(t *testing.T) {
	var o other
	_ = c.(*net.TCPConn)
}
`

// TestAdapted changes what a test reaches, and who calls a changed function, and
// nothing else.
func TestAdapted(t *testing.T) {
	got, err := adapted("PKG_test", map[string][]byte{
		"a_test.go": []byte(adaptSource),
		"b_test.go": []byte("package PKG_test\n\nvar unrelated *net.TCPConn\n"),
	}, []string{"TestA"})
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, adaptWant, string(got["a_test.go"]))
}

const adaptNetSource = `package net

func (ln *TCPListener) port() string { return "" }

func isPlatformError(err error) bool {
	_, ok := err.(syscall.Errno)
	return ok
}

func TestA(t *testing.T) {
	ln := ListenTCP("tcp", nil)
	_ = ln.port() + l.(*TCPListener).port()
	_ = isPlatformError(nil)
}

var last = 1
`

const adaptNetWant = `package net

func (ln *TCPListener) port() string { return "" }

func isPlatformError(err error) bool {return knownError(err)


}

func TestA(t *testing.T) {
	ln := ListenStream("tcp", nil)
	_ = streamPort(ln) + streamPort(l)
	_ = isPlatformError(nil)
}

var last = 1
`

func TestAdaptedInNet(t *testing.T) {
	got, err := adapted("net", map[string][]byte{"a_test.go": []byte(adaptNetSource)}, []string{"TestA"})
	require.NoError(t, err)
	require.Equal(t, adaptNetWant, string(got["a_test.go"]))
}

func TestOnlyTests(t *testing.T) {
	for src, want := range map[string]bool{
		"package p; import \"testing\"; func TestA(t *testing.T) {}; func ExampleB() {}": true,
		"package p; func TestA() {}; func helper() {}":                                   false,
		"package p; var x int":                 false,
		"package p; func (t T) TestA() {}":     false,
		"package p; func init() { go func() }": false,
	} {
		got, err := onlyTests("a_test.go", []byte(src))
		if err != nil {
			got = false
		}
		assert.Equal(t, want, got, src)
	}
}
