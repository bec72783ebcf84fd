package rdmanet

import (
	"bufio"
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestServerSpeaksFirst has the listening end say the first word, as mail servers do, and
// the dialing end wait for it: on iWARP that order ends connections.
func TestServerSpeaksFirst(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		l, err := fl.listen.listen(context.Background(), "rdma", testAddr())
		require.NoError(t, err)
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				wg.Go(func() {
					_, err := fmt.Fprintf(c, "220 ready\r\n")
					assert.NoError(t, err)
					answer, err := bufio.NewReader(c).ReadString('\n')
					assert.NoError(t, err)
					assert.Equal(t, "QUIT\r\n", answer)
					assert.NoError(t, c.Close())
				})
			}
		})
		for range 50 {
			c, err := fl.dialer.Dial("rdma", l.Addr().String())
			require.NoError(t, err)
			greeting, err := bufio.NewReader(c).ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "220 ready\r\n", greeting)
			_, err = fmt.Fprintf(c, "QUIT\r\n")
			require.NoError(t, err)
			require.NoError(t, c.Close())
		}
		require.NoError(t, l.Close())
		wg.Wait()
	})
}
