package bench

import "testing"

// BenchmarkChecksum is the stream of the root over rdma, without checksums and with them:
// transport=checked is rdma with Dialer.Checksum.
func BenchmarkChecksum(b *testing.B) { Run(b, checksumCases()) }

func checksumCases() (cases []Case) {
	for _, size := range []int{64, 1 << 10, 64 << 10, 1 << 20} {
		cases = append(cases, over([]string{"rdma", "checked"}, "size="+SizeName(size)+"/", size, func(m Meter, n int, at Site, transport string) {
			Stream(m, n, at.Dial(m, transport), size)
		})...)
	}
	return cases
}
