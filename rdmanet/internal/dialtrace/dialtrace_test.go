package dialtrace

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConnect(t *testing.T) {
	at := netip.MustParseAddrPort("[::1]:7")
	failure := errors.New("no")
	var told []string
	start := func(network, address string) { told = append(told, "start "+network+" "+address) }
	done := func(network, address string, err error) {
		told = append(told, fmt.Sprint("done ", network, " ", address, " ", err))
	}
	for _, tt := range []struct {
		hooks *Hooks
		err   error
		told  []string
	}{
		{nil, nil, []string{"dial"}},
		{&Hooks{}, failure, []string{"dial"}},
		{&Hooks{ConnectStart: start}, nil, []string{"start tcp [::1]:7", "dial"}},
		{&Hooks{ConnectDone: done}, nil, []string{"dial", "done tcp [::1]:7 <nil>"}},
		{&Hooks{ConnectStart: start, ConnectDone: done}, failure, []string{"start tcp [::1]:7", "dial", "done tcp [::1]:7 no"}},
	} {
		told = nil
		ctx := context.Background()
		if tt.hooks != nil {
			ctx = With(ctx, tt.hooks)
		}
		n, err := Connect(ctx, "tcp", at, func() (int, error) { told = append(told, "dial"); return 3, tt.err })
		require.Equal(t, 3, n)
		require.Equal(t, tt.err, err)
		require.Equal(t, tt.told, told)
	}
}

func TestLookup(t *testing.T) {
	type seen struct{}
	ctx := With(context.Background(), &Hooks{})
	require.Equal(t, ctx, Lookup(ctx))
	require.Equal(t, context.Background(), Lookup(context.Background()))
	ctx = With(ctx, &Hooks{Lookup: func(ctx context.Context) context.Context { return context.WithValue(ctx, seen{}, 3) }})
	require.Equal(t, 3, Lookup(ctx).Value(seen{}))
}
