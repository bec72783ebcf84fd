module github.com/rdmanet/go-rdmanet/metrics/rdmaexpvar

go 1.25.0

require github.com/rdmanet/go-rdmanet v0.0.0-20261124170743-eae1882e38c8

require (
	github.com/KimMachineGun/automemlimit v1.0.1 // indirect
	github.com/ebitengine/purego v0.11.3 // indirect
	github.com/libp2p/go-buffer-pool v0.1.0 // indirect
	github.com/pbnjay/memory v0.0.0-20210728143218-7b4eea64cf58 // indirect
	golang.org/x/sys v0.47.0 // indirect
)

replace github.com/rdmanet/go-rdmanet => ../..
