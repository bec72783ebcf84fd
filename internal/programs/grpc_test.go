package programs

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/interop"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// caseUnderway is the test whose interoperability case runs.
var caseUnderway atomic.Pointer[testing.T]

// fatalLogger makes a failed interoperability case, which would end the process with a
// log line, a failed test. Other lines are nobody's concern.
type fatalLogger struct{ grpclog.LoggerV2 }

func (fatalLogger) Fatal(args ...any)                 { caseUnderway.Load().Fatal(args...) }
func (fatalLogger) Fatalln(args ...any)               { caseUnderway.Load().Fatal(args...) }
func (fatalLogger) Fatalf(format string, args ...any) { caseUnderway.Load().Fatalf(format, args...) }

func init() {
	grpclog.SetLoggerV2(fatalLogger{grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)})
}

// grpcPair starts the server of the interoperability tests on rdmanet and returns a
// client of it.
func grpcPair(t *testing.T, server, client credentials.TransportCredentials) (*wire, *grpc.ClientConn) {
	t.Helper()
	w := newWire(t)
	s := grpc.NewServer(grpc.Creds(server))
	testpb.RegisterTestServiceServer(s, interop.NewTestServer())
	served := make(chan error)
	go func() { served <- s.Serve(w) }()
	t.Cleanup(func() {
		s.Stop()
		assert.NoError(t, <-served)
	})
	cc, err := grpcClient(w, client)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, cc.Close()) })
	return w, cc
}

// grpcClient is a client whose connections are rdmanet's.
func grpcClient(w *wire, creds credentials.TransportCredentials) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+serverName, grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return w.Dial(ctx) }))
}

// grpcSecurities are the credentials that the cases run with.
func grpcSecurities(t *testing.T, test func(t *testing.T, w *wire, cc *grpc.ClientConn)) {
	t.Run("insecure", func(t *testing.T) {
		w, cc := grpcPair(t, insecure.NewCredentials(), insecure.NewCredentials())
		test(t, w, cc)
	})
	t.Run("TLS", func(t *testing.T) {
		server, client := tlsConfigs(t)
		w, cc := grpcPair(t, credentials.NewTLS(server), credentials.NewTLS(client))
		test(t, w, cc)
	})
}

// TestGRPCInteroperability runs the cases of
// https://github.com/grpc/grpc/blob/master/doc/interop-test-descriptions.md that need no
// service of Google's, no load balancer and no other server.
func TestGRPCInteroperability(t *testing.T) {
	type client = testpb.TestServiceClient
	cases := []struct {
		name string
		do   func(context.Context, client, ...grpc.CallOption)
	}{
		{"empty_unary", interop.DoEmptyUnaryCall},
		{"large_unary", interop.DoLargeUnaryCall},
		{"client_streaming", interop.DoClientStreaming},
		{"server_streaming", interop.DoServerStreaming},
		{"ping_pong", interop.DoPingPong},
		{"empty_stream", interop.DoEmptyStream},
		{"timeout_on_sleeping_server", interop.DoTimeoutOnSleepingServer},
		{"cancel_after_begin", interop.DoCancelAfterBegin},
		{"cancel_after_first_response", interop.DoCancelAfterFirstResponse},
		{"custom_metadata", interop.DoCustomMetadata},
		{"status_code_and_message", interop.DoStatusCodeAndMessage},
		{"special_status_message", interop.DoSpecialStatusMessage},
	}
	grpcSecurities(t, func(t *testing.T, w *wire, cc *grpc.ClientConn) {
		ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
		defer cancel()
		tc := testpb.NewTestServiceClient(cc)
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				caseUnderway.Store(t)
				c.do(ctx, tc)
			})
		}
		t.Run("unimplemented_service", func(t *testing.T) {
			caseUnderway.Store(t)
			interop.DoUnimplementedService(ctx, testpb.NewUnimplementedServiceClient(cc))
		})
		t.Run("unimplemented_method", func(t *testing.T) {
			caseUnderway.Store(t)
			interop.DoUnimplementedMethod(ctx, cc)
		})
		t.Run("compressed", func(t *testing.T) {
			caseUnderway.Store(t)
			interop.DoLargeUnaryCall(ctx, tc, grpc.UseCompressor(gzip.Name))
			interop.DoPingPong(ctx, tc, grpc.UseCompressor(gzip.Name))
		})
		assert.Equal(t, 1, w.count(), "one connection serves them all")
	})
}

// TestGRPCSoak runs the soak cases, shortly: many large calls at once, with one
// connection for all and with one for each.
func TestGRPCSoak(t *testing.T) {
	for _, each := range []bool{false, true} {
		name := map[bool]string{false: "rpc_soak", true: "channel_soak"}[each]
		t.Run(name, func(t *testing.T) {
			caseUnderway.Store(t)
			silence(t)
			w, cc := grpcPair(t, insecure.NewCredentials(), insecure.NewCredentials())
			ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
			defer cancel()
			interop.DoSoakTest(ctx, interop.SoakTestConfig{
				RequestSize: 271828, ResponseSize: 314159,
				PerIterationMaxAcceptableLatency: patience, OverallTimeout: 2 * patience,
				ServerAddr: w.Addr().String(), NumWorkers: 4, Iterations: 100, MaxFailures: 0,
				ChannelForTest: func() (*grpc.ClientConn, func()) {
					if !each {
						return cc, func() {}
					}
					cc, err := grpcClient(w, insecure.NewCredentials())
					if err != nil {
						panic(err) // the options are wrong
					}
					return cc, func() { _ = cc.Close() }
				},
			})
			if each {
				assert.GreaterOrEqual(t, w.count(), 100)
			} else {
				assert.Equal(t, 1, w.count())
			}
		})
	}
}

// silence drops what the soak cases print about each call.
func silence(t *testing.T) {
	t.Helper()
	nowhere, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	stderr := os.Stderr
	os.Stderr = nowhere
	t.Cleanup(func() {
		os.Stderr = stderr
		_ = nowhere.Close()
	})
}

// TestGRPCServerThatStops has a client meet the end of its server: gracefully after
// the call that is under way, and at once.
func TestGRPCServerThatStops(t *testing.T) {
	w := newWire(t)
	s := grpc.NewServer()
	testpb.RegisterTestServiceServer(s, interop.NewTestServer())
	served := make(chan error)
	go func() { served <- s.Serve(w) }()
	cc, err := grpcClient(w, insecure.NewCredentials())
	require.NoError(t, err)
	defer cc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tc := testpb.NewTestServiceClient(cc)
	stream, err := tc.FullDuplexCall(ctx)
	require.NoError(t, err)
	ask := func() error {
		err := stream.Send(&testpb.StreamingOutputCallRequest{ResponseParameters: []*testpb.ResponseParameters{{Size: 1000}}})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	require.NoError(t, ask())
	stopped := make(chan struct{})
	go func() {
		s.GracefulStop()
		close(stopped)
	}()
	require.Eventually(t, func() bool {
		conn, err := w.Dial(ctx)
		if err == nil {
			_ = conn.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	}, patience, time.Millisecond, "no new connections")
	require.NoError(t, ask(), "the call under way goes on")
	require.NoError(t, stream.CloseSend())
	_, err = stream.Recv()
	require.ErrorIs(t, err, io.EOF)
	<-stopped
	require.NoError(t, <-served)
	_, err = tc.EmptyCall(ctx, &testpb.Empty{})
	assert.Equal(t, codes.Unavailable, status.Code(err), err)
	assert.ErrorContains(t, err, "connection refused")
}
