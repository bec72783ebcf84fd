package programs

import (
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"net"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// These are the snippets of docs/MIGRATION.md, so that they compile.

func Example_grpc() {
	l, err := rdmanet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(l) }()
	defer server.Stop()

	var dialer rdmanet.Dialer
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", addr)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(context.Background(), &grpc_health_v1.HealthCheckRequest{})
	fmt.Println(answer.GetStatus(), err)
	// Output: SERVING <nil>
}

func Example_redis() {
	var dialer rdmanet.Dialer
	client := redis.NewClient(&redis.Options{
		Addr: "server:6379",
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, addr)
		},
	})
	defer client.Close()
}

// A Dialer takes the place of the one that would use Options.TLSConfig.
func Example_redisTLS() {
	config := &tls.Config{ServerName: "server"}
	var dialer rdmanet.Dialer
	client := redis.NewClient(&redis.Options{
		Addr: "server:6379",
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return tls.Client(conn, config), nil
		},
	})
	defer client.Close()
}

func Example_pgx() {
	config, err := pgx.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	var dialer rdmanet.Dialer
	config.DialFunc = dialer.DialContext
	db := stdlib.OpenDB(*config) // for database/sql; or pgx.ConnectConfig(ctx, config)
	defer db.Close()
}
