// Package drivers registers every verbs driver of this module. It is the one
// place that names them.
package drivers

import (
	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/ibv"
	_ "github.com/rdmanet/go-rdmanet/internal/verbs/soft" // registers itself, and so comes first
)

func init() { driver.Register(ibv.Driver()) }
