package syncbuffer

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBuffer(t *testing.T) {
	var b Buffer
	require.Empty(t, b.String())
	const writers, lines = 4, 100
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range lines {
				fmt.Fprintln(&b, "line")
				require.Contains(t, b.String(), "line\n")
			}
		})
	}
	all.Wait()
	require.Equal(t, strings.Repeat("line\n", writers*lines), b.String())
}
