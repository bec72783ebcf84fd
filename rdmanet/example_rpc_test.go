package rdmanet_test

import (
	"errors"
	"fmt"
	"log"
	"net/rpc"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// Quotients is a service of net/rpc.
type Quotients struct{}

// Divide sets quotient to the first of two numbers divided by the second.
func (Quotients) Divide(numbers [2]int, quotient *int) error {
	if numbers[1] == 0 {
		return errors.New("divide by zero")
	}
	*quotient = numbers[0] / numbers[1]
	return nil
}

// A server of net/rpc accepts from an RDMA listener, and a client is made of a connection.
func Example_rpc() {
	l, err := rdmanet.Listen("rdma", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	server := rpc.NewServer()
	if err := server.Register(Quotients{}); err != nil {
		log.Fatal(err)
	}
	go func() { // as server.Accept(l), which logs the end of l
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go server.ServeConn(conn)
		}
	}()

	conn, err := rdmanet.Dial("rdma", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	client := rpc.NewClient(conn)
	defer client.Close()
	var quotient int
	fmt.Println(client.Call("Quotients.Divide", [2]int{42, 6}, &quotient), quotient)
	fmt.Println(client.Call("Quotients.Divide", [2]int{42, 0}, &quotient))
	// Output:
	// <nil> 7
	// divide by zero
}
