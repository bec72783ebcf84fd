package rdmanet_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"golang.org/x/net/netutil"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// How many connections a server has at once is limited as with TCP: by
// netutil.LimitListener. A client too many waits until another has gone.
func ExampleListener_limit() {
	inner, err := rdmanet.Listen("rdma", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	l := netutil.LimitListener(inner, 1)
	defer l.Close()
	go echo(l)

	ask := func(conn io.ReadWriter) error {
		if _, err := conn.Write([]byte("?")); err != nil {
			return err
		}
		_, err := io.ReadFull(conn, make([]byte, 1))
		return err
	}
	first, err := rdmanet.Dial("rdma", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("first:", ask(first))

	second, err := rdmanet.Dial("rdma", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer second.Close()
	if err := second.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		log.Fatal(err)
	}
	fmt.Println("second has to wait:", errors.Is(ask(second), os.ErrDeadlineExceeded))

	first.Close()
	if err := second.SetReadDeadline(time.Time{}); err != nil {
		log.Fatal(err)
	}
	_, err = io.ReadFull(second, make([]byte, 1))
	fmt.Println("second:", err)
	// Output:
	// first: <nil>
	// second has to wait: true
	// second: <nil>
}
