package bench

import (
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"time"
)

// job is what a client asks of the other end: size and count of the messages
// that follow on the connection.
type job struct {
	kind        jobKind
	size, count int
}

type jobKind uint64

const (
	// jobStream takes the messages and confirms the last.
	jobStream jobKind = iota + 1
	// jobEcho sends each message back.
	jobEcho
	// jobEchoAtOnce is jobEcho without saying first that it is ready.
	jobEchoAtOnce
	// jobPoll has the connection poll from now on.
	jobPoll
	// jobHold reads nothing, for holdTime.
	jobHold
)

const jobLen = 24

func (j job) bytes() []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, jobLen), uint64(j.kind))
	b = binary.LittleEndian.AppendUint64(b, uint64(j.size))
	return binary.LittleEndian.AppendUint64(b, uint64(j.count))
}

func parseJob(b []byte) job {
	return job{
		kind:  jobKind(binary.LittleEndian.Uint64(b)),
		size:  int(binary.LittleEndian.Uint64(b[8:])),
		count: int(binary.LittleEndian.Uint64(b[16:])),
	}
}

// startJob gives the other end a job and waits until it is ready for it.
func startJob(m Meter, conn net.Conn, kind jobKind, size, count int) {
	if _, err := conn.Write(job{kind, size, count}.bytes()); err != nil {
		m.Fatal(err)
	}
	confirm(m, conn)
}

// confirm waits for the other end's word.
func confirm(m Meter, conn net.Conn) {
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		m.Fatal(err)
	}
}

func serveJobs(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			defer conn.Close()
			// A client that stops in the middle has failed and says so itself.
			for err := error(nil); err == nil; {
				err = serveJob(conn)
			}
		}()
	}
}

func serveJob(conn net.Conn) error {
	var head [jobLen]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return err
	}
	j := parseJob(head[:])
	if j.kind != jobEchoAtOnce && j.kind != jobPoll {
		if _, err := conn.Write([]byte{'r'}); err != nil {
			return err
		}
	}
	switch j.kind {
	case jobPoll:
		return poll(conn)
	case jobHold:
		time.Sleep(holdTime)
		return io.EOF
	case jobStream:
		buf := make([]byte, readSize)
		for left := j.size * j.count; left > 0; {
			n, err := conn.Read(buf[:min(left, len(buf))])
			if err != nil {
				return err
			}
			left -= n
		}
		_, err := conn.Write([]byte{'d'})
		return err
	case jobEcho, jobEchoAtOnce:
		buf := make([]byte, j.size)
		for range j.count {
			if _, err := io.ReadFull(conn, buf); err != nil {
				return err
			}
			if _, err := conn.Write(buf); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("unknown job %d", j.kind)
}

// holdTime is how long a peer reads nothing: longer than it takes to find that a Write waits, also
// on a busy machine.
const holdTime = time.Minute
