package cm

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestConstantsHaveNames looks in verbs.go for every constant of the types that it names:
// a program cannot import internal/verbs.
func TestConstantsHaveNames(t *testing.T) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "verbs.go", nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	named := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			named[s.Sel.Name] = true
		}
		return true
	})
	pkg, err := importer.ForCompiler(fset, "source", nil).Import("github.com/rdmanet/go-rdmanet/internal/verbs")
	require.NoError(t, err)
	constants := 0
	for _, name := range pkg.Scope().Names() {
		c, ok := pkg.Scope().Lookup(name).(*types.Const)
		if !ok || !c.Exported() {
			continue
		}
		if of, ok := c.Type().(*types.Named); ok && named[of.Obj().Name()] {
			constants++
			assert.True(t, named[name], "%s, a %s, has no name here", name, of.Obj().Name())
		}
	}
	require.Greater(t, constants, 100)
}
