module github.com/rdmanet/go-rdmanet

go 1.25.0

require (
	github.com/KimMachineGun/automemlimit v1.0.1
	github.com/ebitengine/purego v0.11.3
	github.com/libp2p/go-buffer-pool v0.1.0
	github.com/stretchr/testify v1.12.1
	golang.org/x/net v0.58.0
	golang.org/x/sys v0.47.0
)

require (
	github.com/pbnjay/memory v0.0.0-20210728143218-7b4eea64cf58 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
