module github.com/rdmanet/go-rdmanet/internal/benchreport

go 1.25.0

require (
	github.com/stretchr/testify v1.12.1
	golang.org/x/perf v0.0.0-20260709024250-82a0b07e230d
)

require (
	github.com/aclements/go-moremath v0.0.0-20210112150236-f10218a38794 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
