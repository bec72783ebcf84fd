package drivers

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
)

// The software device is asked first.
func TestOrder(t *testing.T) {
	var names []string
	for _, d := range driver.Drivers() {
		names = append(names, d.Name())
	}
	require.Equal(t, []string{"soft", "ibv"}, names)
}
