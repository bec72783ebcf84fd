package cm

import (
	_ "github.com/rdmanet/go-rdmanet/internal/verbs/drivers" // so that IDs find a device
)
