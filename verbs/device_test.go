package verbs

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDeviceCapsSayTheirNames(t *testing.T) {
	assert.Empty(t, DeviceCaps(0).String())
	assert.Equal(t, "write with immediate, SRQ", (CapWriteImm | CapSRQ).String())
	assert.Equal(t, []string{"on-demand paging"}, (CapODP | 1<<30).Names())
	assert.Len(t, (2*lastCap - 1).Names(), len(capNames), "each has one")
}

// lastCap is the highest of the DeviceCaps.
const lastCap = CapUD
