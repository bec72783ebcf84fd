package rdmanet_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"time"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// echo serves every client of l what it says, until l is closed.
func echo(l net.Listener) {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(conn, conn)
		}()
	}
}

// What worked with net.Listen and net.Dial works with these.
func Example() {
	l, err := rdmanet.Listen("rdma", "127.0.0.1:0") // was: net.Listen("tcp", ...)
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	go echo(l)

	conn, err := rdmanet.Dial("rdma", l.Addr().String()) // was: net.Dial("tcp", ...)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("hello")); err != nil {
		log.Fatal(err)
	}
	if err := conn.(*rdmanet.Conn).CloseWrite(); err != nil {
		log.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	fmt.Printf("%s, %v\n", answer, err)
	// Output: hello, <nil>
}

// On the networks of TCP a server takes clients of both kinds on one port, and a client
// goes by RDMA where that is possible.
func ExampleDial_tcp() {
	l, err := rdmanet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	go echo(l)
	for _, dial := range []func(network, address string) (net.Conn, error){net.Dial, rdmanet.Dial} {
		conn, err := dial("tcp", l.Addr().String())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%T\n", conn)
		conn.Close()
	}
	// Output:
	// *net.TCPConn
	// *rdmanet.Conn
}

// A server that knows nothing of RDMA costs a client nothing but a line in its log.
func ExampleDialer_fallback() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	dialer := rdmanet.Dialer{
		OnFallback: func(e *rdmanet.FallbackError) { fmt.Println("without RDMA:", e.Reason) },
	}
	conn, err := dialer.Dial("tcp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	fmt.Printf("%T\n", conn)

	dialer.RequireRDMA = true
	_, err = dialer.Dial("tcp", l.Addr().String())
	fmt.Println("required:", err != nil)
	// Output:
	// without RDMA: refused
	// *net.TCPConn
	// required: true
}

func ExampleDialer() {
	l, err := rdmanet.Listen("rdma", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	dialer := rdmanet.Dialer{
		Timeout:       5 * time.Second,
		Device:        "soft0",   // instead of the best one for the address
		ReadBuffer:    64 << 10,  // the receive ring at first
		MaxReadBuffer: 512 << 10, // and at most
	}
	conn, err := dialer.Dial("rdma", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	rc := conn.(*rdmanet.Conn)
	fmt.Println(rc.Device(), rc.Stats().ReadBuffer)
	// Output: soft0 65536
}

func ExampleListenConfig() {
	lc := rdmanet.ListenConfig{
		Backlog:          1000,            // clients that may wait for Accept
		HandshakeTimeout: time.Second,     // for a client that says nothing
		KeepAlive:        2 * time.Second, // silence before a client is asked for a sign of life
	}
	l, err := lc.Listen(context.Background(), "rdma", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	fmt.Println(l.Addr().Network())
	// Output: tcp
}

// Deadlines end calls that wait, as those of a TCP connection do.
func ExampleConn_SetReadDeadline() {
	l, err := rdmanet.Listen("rdma", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	conn, err := rdmanet.Dial("rdma", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		log.Fatal(err)
	}
	_, err = conn.Read(make([]byte, 1)) // nobody says anything
	var timeout net.Error
	fmt.Println(errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout())
	// Output: true true
}

// Reserve gives memory that the device sends from, so that what is put together there
// is not copied again.
func ExampleConn_Reserve() {
	client, server := pair()
	defer client.Close()
	defer server.Close()

	buf, err := client.Reserve(100)
	if err != nil {
		log.Fatal(err)
	}
	n := copy(buf, "made where it is sent from")
	if err := client.Commit(n); err != nil {
		log.Fatal(err)
	}
	got := make([]byte, n)
	_, err = io.ReadFull(server, got)
	fmt.Printf("%s, %v\n", got, err)
	// Output: made where it is sent from, <nil>
}

// Peek shows what has arrived without copying it; Discard takes it off.
func ExampleConn_Peek() {
	client, server := pair()
	defer client.Close()
	defer server.Close()

	if _, err := client.Write([]byte("GET /")); err != nil {
		log.Fatal(err)
	}
	b, err := server.Peek(3)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", b)
	if _, err := server.Discard(4); err != nil { // b may not be used any more
		log.Fatal(err)
	}
	rest := make([]byte, 1)
	_, err = io.ReadFull(server, rest)
	fmt.Printf("%s, %v\n", rest, err)
	// Output:
	// GET
	// /, <nil>
}

func ExampleConn_Stats() {
	client, server := pair()
	defer client.Close()
	defer server.Close()

	for range 3 {
		if _, err := client.Write(make([]byte, 100)); err != nil {
			log.Fatal(err)
		}
	}
	s := client.Stats()
	fmt.Println(s.BytesWritten, "bytes in", s.MessagesSent, "messages,", s.CreditStalls, "stalls")
	// Output: 300 bytes in 3 messages, 0 stalls
}

// The counters of a process go on when connections are closed.
func ExampleReadStats() {
	before := rdmanet.ReadStats()
	client, server := pair()
	if _, err := client.Write([]byte("hello")); err != nil {
		log.Fatal(err)
	}
	client.Close()
	server.Close()

	now := rdmanet.ReadStats()
	fmt.Println(written(now)-written(before), "bytes written")
	// Output: 5 bytes written
}

func written(s rdmanet.Stats) (n uint64) {
	for _, device := range s.Devices {
		n += device.BytesWritten
	}
	return n
}

// Conns is what ss shows for TCP.
func ExampleConns() {
	client, server := pair()
	defer client.Close()
	defer server.Close()
	if _, err := client.Write([]byte("hello")); err != nil {
		log.Fatal(err)
	}
	if _, err := server.Peek(5); err != nil {
		log.Fatal(err)
	}
	for _, c := range rdmanet.Conns() {
		if c.Accepted && c.Remote.String() == client.LocalAddr().String() {
			fmt.Println(c.State, c.Device, "accepted:", c.Accepted, "unread:", c.Unread)
		}
	}
	// Output: ESTAB soft0 accepted: true unread: 5
}

// counting is a listener that counts its clients: like any net.Listener, an RDMA one
// can be wrapped.
type counting struct {
	net.Listener
	clients int
}

func (l *counting) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.clients++
	}
	return conn, err
}

func ExampleListener() {
	inner, err := rdmanet.Listen("rdma", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	l := &counting{Listener: inner}
	served := make(chan struct{})
	go func() {
		defer close(served)
		echo(l)
	}()
	for range 3 {
		conn, err := rdmanet.Dial("rdma", l.Addr().String())
		if err != nil {
			log.Fatal(err)
		}
		if _, err := conn.Write([]byte("x")); err != nil {
			log.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			log.Fatal(err)
		}
		conn.Close()
	}
	l.Close()
	<-served
	fmt.Println(l.clients, "clients")
	// Output: 3 clients
}

// pair is the two ends of a connection.
func pair() (client, server *rdmanet.Conn) {
	l, err := rdmanet.Listen("rdma", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	conn, err := rdmanet.Dial("rdma", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	if server, err = l.(*rdmanet.Listener).AcceptConn(); err != nil {
		log.Fatal(err)
	}
	return conn.(*rdmanet.Conn), server
}
