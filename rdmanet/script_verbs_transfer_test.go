package rdmanet

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"sync"
)

func init() {
	scriptVerbs["exchange"] = scriptExchange
	scriptVerbs["writers"] = scriptWriters
	scriptVerbs["readers"] = scriptReaders
}

// scriptExchange: A B BYTES SEED sends random bytes both ways at once, in writes
// and reads of random lengths, each stream ended by CloseWrite. It tells the hashes.
func scriptExchange(w *world, a []string) (string, error) {
	x, y := w.tcpLike(a[0]), w.tcpLike(a[1])
	n, seed := number(a[2]), uint64(number(a[3]))
	var wg sync.WaitGroup
	var errs [4]error
	var sums [4]string
	for i, way := range [][2]tcpLike{{x, y}, {y, x}} {
		wg.Go(func() { sums[2*i], errs[2*i] = sendRandom(way[0], n, seed+uint64(i)) })
		wg.Go(func() { sums[2*i+1], errs[2*i+1] = receiveRandom(way[1], seed+uint64(i)+9) })
	}
	wg.Wait()
	if sums[0] != sums[1] || sums[2] != sums[3] {
		return fmt.Sprint(sums), errors.Join(errors.New("other bytes arrived"), errors.Join(errs[:]...))
	}
	return sums[0] + " " + sums[2], errors.Join(errs[:]...)
}

// splits are lengths from 1 byte to a few rings, short ones as often as long ones.
func splits(seed uint64) func() int {
	r := rand.New(rand.NewPCG(seed, 1))
	return func() int { return 1 + r.IntN(1<<r.IntN(18)) }
}

func sendRandom(c tcpLike, n int, seed uint64) (string, error) {
	data := make([]byte, 1<<18)
	noise := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	next, sum := splits(seed), sha256.New()
	for n > 0 {
		p := data[:min(next(), n)]
		noise.Read(p)
		sum.Write(p)
		if m, err := c.Write(p); err != nil || m != len(p) {
			return "", fmt.Errorf("wrote %d of %d: %w", m, len(p), err)
		}
		n -= len(p)
	}
	return digest(sum), c.CloseWrite()
}

func receiveRandom(c net.Conn, seed uint64) (string, error) {
	buf := make([]byte, 1<<18)
	next, sum := splits(seed), sha256.New()
	for {
		n, err := c.Read(buf[:next()])
		sum.Write(buf[:n])
		if err == io.EOF {
			return digest(sum), nil
		}
		if err != nil {
			return "", err
		}
	}
}

func digest(h hash.Hash) string { return fmt.Sprintf("%x", h.Sum(nil)[:8]) }

const recordLen = 1000

// record fills b with what writer i says in its j-th record.
func record(b []byte, i, j int) {
	binary.LittleEndian.PutUint32(b, uint32(i))
	binary.LittleEndian.PutUint32(b[4:], uint32(j))
	for k := range b[8:] {
		b[8+k] = byte(i*31 + j*7 + k)
	}
}

// scriptWriters: FROM TO COUNT RECORDS lets several goroutines write records at
// once, of which none may be torn apart and each writer's stay in order.
func scriptWriters(w *world, a []string) (string, error) {
	from, to, count, records := w.conn(a[0]), w.conn(a[1]), number(a[2]), number(a[3])
	var wg sync.WaitGroup
	errs := make([]error, count)
	for i := range count {
		wg.Go(func() {
			b := make([]byte, recordLen)
			for j := range records {
				record(b, i, j)
				if _, err := from.Write(b); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	next := make([]int, count)
	got, want := make([]byte, recordLen), make([]byte, recordLen)
	for range count * records {
		if _, err := io.ReadFull(to, got); err != nil {
			return "", err
		}
		i := binary.LittleEndian.Uint32(got)
		if int(i) >= count {
			return "", errors.New("a record was torn apart")
		}
		if record(want, int(i), next[i]); !bytes.Equal(got, want) {
			return "", fmt.Errorf("record %d of writer %d was torn apart or came out of order: %s", next[i], i, recordDifference(got, want))
		}
		next[i]++
	}
	wg.Wait()
	return fmt.Sprint(next), errors.Join(errs...)
}

// recordDifference says in which bytes a record is not what it is to be, and what it begins with there.
func recordDifference(got, want []byte) string {
	first, last, n := -1, 0, 0
	for i := range got {
		if got[i] == want[i] {
			continue
		}
		if first < 0 {
			first = i
		}
		last = i
		n++
	}
	some := func(b []byte) []byte { return b[first:min(first+32, len(b))] }
	return fmt.Sprintf("it is numbered %d, and %d bytes from %d to %d differ, which begin %x for %x",
		binary.LittleEndian.Uint32(got[4:]), n, first, last, some(got), some(want))
}

// scriptReaders: FROM TO COUNT BYTES lets several goroutines read at once: every
// byte comes to one of them.
func scriptReaders(w *world, a []string) (string, error) {
	from, to, count, n := w.tcpLike(a[0]), w.conn(a[1]), number(a[2]), number(a[3])
	var wg sync.WaitGroup
	var mu sync.Mutex
	var seen [256]int
	var failed error
	for range count {
		wg.Go(func() {
			b := make([]byte, 777)
			for {
				k, err := to.Read(b)
				mu.Lock()
				for _, v := range b[:k] {
					seen[v]++
				}
				if err != nil && err != io.EOF {
					failed = err
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	data := make([]byte, n)
	var sent [256]int
	for i := range data {
		data[i] = byte(i * i)
		sent[data[i]]++
	}
	_, err := from.Write(data)
	err = errors.Join(err, from.CloseWrite())
	wg.Wait()
	return fmt.Sprintf("all=%t", seen == sent), errors.Join(err, failed)
}
