package ring

import (
	"math/rand/v2"
	"testing"
)

// script chooses by the bytes of a fuzzer's input; beyond its end, always 0.
type script struct{ b []byte }

func (s *script) intn(n int) int {
	if n <= 1 || len(s.b) == 0 {
		return 0
	}
	v := int(s.b[0])
	s.b = s.b[1:]
	if n > 256 && len(s.b) > 0 {
		v |= int(s.b[0]) << 8
		s.b = s.b[1:]
		if n > 1<<16 && len(s.b) > 0 {
			v |= int(s.b[0]) << 16
			s.b = s.b[1:]
		}
	}
	return v % n
}

// FuzzScript drives both ends by the fuzzer's bytes.
func FuzzScript(f *testing.F) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 0))
		b := make([]byte, 64<<seed/4)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4096 {
			return
		}
		s := &script{b}
		end := func() endConfig {
			size := s.intn(3)
			o := origins[s.intn(len(origins))]
			return endConfig{MinSize << size, MinSize << (size + s.intn(3)), uint32(MinDepth + s.intn(64)), o.bytes, o.messages}
		}
		m := newModel(t, s, [2]endConfig{end(), end()})
		m.checksums = len(b)%2 == 1
		for len(s.b) > 0 {
			op := s.intn(2 * (numOps + 3))
			e := m.ends[op&1]
			switch op >>= 1; op {
			case numOps:
				m.settle(true)
			case numOps + 1:
				m.settle(false)
			case numOps + 2:
				m.lazy, m.small = !m.lazy, s.intn(2) == 0
			default:
				m.step(e, op)
			}
		}
		m.settle(true)
		m.ends[0].finish()
		m.ends[1].finish()
		m.settle(true)
	})
}
