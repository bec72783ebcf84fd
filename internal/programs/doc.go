// Package programs runs programs and libraries that people use over rdmanet, as
// tests: gRPC, HTTP/2, TLS, WebSockets, SSH and so on over our connections, and
// PostgreSQL, Redis and nginx with their own load tools behind a pair of
// cmd/rdmanet-proxy. It is a module of its own, so that what it needs is nothing that
// users of rdmanet need.
//
//	cd internal/programs && go test ./... # on Linux
//
// The servers and tools are Debian's packages postgresql, redis-server, redis-tools,
// nginx-light and wrk. Where one is missing its tests are skipped, and say so; with
// CI=true they fail.
package programs
