package child

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMain is also the server that the tests start: this binary with one word as
// its only argument.
func TestMain(m *testing.M) {
	if os.Getenv(marker) != "" && len(os.Args) == 2 {
		os.Exit(server(os.Args[1]))
	}
	os.Exit(m.Run())
}

func server(behaviour string) int {
	switch behaviour {
	case "silent":
		return 0
	case "chatty":
		fmt.Println("hello")
	case "fails":
		_ = Announce(os.Stdout, "here")
		return 3
	default:
		_ = Announce(os.Stdout, "a place with spaces")
	}
	ctx, cancel := WithParent(context.Background())
	defer cancel()
	<-ctx.Done()
	return 0
}

func TestServerSaysWhereItListensAndEndsWithItsInput(t *testing.T) {
	p, err := Start(t.Context(), "good")
	require.NoError(t, err)
	assert.Equal(t, "a place with spaces", p.Address())
	assert.NotEqual(t, os.Getpid(), p.PID())
	assert.NoError(t, p.Stop())
}

func TestServerThatDoesNotStart(t *testing.T) {
	for _, behaviour := range []string{"silent", "chatty"} {
		_, err := Start(t.Context(), behaviour)
		assert.ErrorContains(t, err, "did not start", behaviour)
	}
}

func TestServerThatFailsLater(t *testing.T) {
	p, err := Start(t.Context(), "fails")
	require.NoError(t, err)
	assert.ErrorContains(t, p.Stop(), "exit status 3")
}

func TestServerEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p, err := Start(ctx, "good")
	require.NoError(t, err)
	cancel()
	<-p.drained
	assert.Error(t, p.Stop())
}

func TestProgramStartedByHandHasNoParent(t *testing.T) {
	ctx, cancel := WithParent(t.Context())
	assert.NoError(t, ctx.Err())
	cancel()
	assert.Error(t, ctx.Err())
}
