// Hello is the smallest server and client, to be copied. What differs from package net
// are the two lines with rdmanet.
//
//	go run ./examples/hello -listen 127.0.0.1:7000
//	go run ./examples/hello -dial 127.0.0.1:7000
//
// On one host it needs no RDMA hardware.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// network is RDMA. "tcp" would be RDMA where that gets there, and otherwise TCP.
const network = "rdma"

func serve(address string) error {
	l, err := rdmanet.Listen(network, address) // in place of net.Listen
	if err != nil {
		return err
	}
	defer l.Close()
	fmt.Println("listening on", l.Addr())
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go echo(conn)
	}
}

func echo(conn net.Conn) {
	defer conn.Close()
	if _, err := io.Copy(conn, conn); err != nil {
		log.Printf("%v: %v", conn.RemoteAddr(), err)
	}
}

func hello(address string) error {
	conn, err := rdmanet.Dial(network, address) // in place of net.Dial
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := fmt.Fprintln(conn, "hello"); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	_, err = fmt.Printf("%v says %s", conn.RemoteAddr(), line)
	return err
}

func main() {
	listen := flag.String("listen", "", "serve on this `address`")
	dial := flag.String("dial", "", "say hello to the server at this `address`")
	flag.Usage = func() { // go run would have it name a temporary file
		fmt.Fprintln(flag.CommandLine.Output(), "Usage of hello:")
		flag.PrintDefaults()
	}
	flag.Parse()
	var err error
	switch {
	case *listen != "":
		err = serve(*listen)
	case *dial != "":
		err = hello(*dial)
	default:
		flag.Usage()
		os.Exit(2)
	}
	if err != nil {
		log.Fatal(err)
	}
}
