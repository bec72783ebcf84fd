package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// instead are the names of package net that adapted tests get others for. Those
// are in netOver.
var instead = map[string]string{
	"DialTCP":   "DialStream",
	"ListenTCP": "ListenStream",
}

var insteadOfPointer = map[string]string{
	"TCPConn":     "StreamConn",
	"TCPListener": "StreamListener",
}

// bodies are helpers of package net's tests that look below the API.
var bodies = map[string]string{
	// It compares errors with ==; this package has more to say than the errno.
	"isPlatformError": "return knownError(err)",
	// They look at the file descriptor.
	"checkFirstListener": "return nil",
	"expectSendfile":     "_ = poll.TestHookDidSendFile; f()",
}

// adapted are those of the test files of one package that change so that tests, by
// name, take what has the methods of a TCPConn for one: all that these tests reach has
// *TCPConn, *TCPListener, DialTCP and ListenTCP exchanged for what netOver offers. The
// rest stays as it is, to the line.
func adapted(pkg string, files map[string][]byte, tests []string) (map[string][]byte, error) {
	a := adapter{fset: token.NewFileSet(), inNet: pkg == "net"}
	parsed := map[string]*ast.File{}
	decls := map[string][]ast.Decl{} // by name; methods by that of their type
	for name, src := range files {
		f, err := parser.ParseFile(a.fset, name, src, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed[name] = f
		for _, d := range f.Decls {
			for _, n := range declared(d) {
				decls[n] = append(decls[n], d)
			}
		}
	}
	seen := reached(decls, tests)
	for d := range seen {
		a.edit(d)
	}
	for d := range mentioning(decls, a.signatures(seen)) {
		if !seen[d] {
			a.edit(d) // or it would call something by its old type
		}
	}
	changed := map[string][]byte{}
	for name, f := range parsed {
		tf := a.fset.File(f.Pos())
		if mine := a.in(tf); len(mine) > 0 {
			changed[name] = apply(files[name], mine)
		}
	}
	return changed, nil
}

// declared are the names under which a declaration is found.
func declared(d ast.Decl) (out []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return []string{d.Name.Name}
		}
		t := d.Recv.List[0].Type
		if p, ok := t.(*ast.StarExpr); ok {
			t = p.X
		}
		if id, ok := t.(*ast.Ident); ok {
			return []string{id.Name}
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				out = append(out, s.Name.Name)
			case *ast.ValueSpec:
				for _, id := range s.Names {
					out = append(out, id.Name)
				}
			}
		}
	}
	return out
}

// reached are the declarations that the named ones mention, and those these mention.
func reached(decls map[string][]ast.Decl, names []string) map[ast.Decl]bool {
	seen := map[ast.Decl]bool{}
	for todo := slices.Clone(names); len(todo) > 0; {
		name := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, d := range decls[name] {
			if seen[d] {
				continue
			}
			seen[d] = true
			ast.Inspect(d, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					todo = append(todo, id.Name)
				}
				return true
			})
		}
	}
	return seen
}

// mentioning are the declarations that mention one of the names.
func mentioning(decls map[string][]ast.Decl, names map[string]bool) map[ast.Decl]bool {
	found := map[ast.Decl]bool{}
	for _, same := range decls {
		for _, d := range same {
			ast.Inspect(d, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && names[id.Name] {
					found[d] = true
				}
				return !found[d]
			})
		}
	}
	return found
}

// An adapter collects changes of text.
type adapter struct {
	fset  *token.FileSet
	inNet bool // names of package net have no qualifier
	edits []edit
}

type edit struct {
	from, to token.Pos
	text     string
}

// signatures are the names of those functions of which the signature changes.
func (a *adapter) signatures(of map[ast.Decl]bool) map[string]bool {
	changed := map[string]bool{}
	for d := range of {
		f, ok := d.(*ast.FuncDecl)
		if ok && f.Recv == nil && slices.ContainsFunc(a.edits, func(e edit) bool {
			return f.Type.Pos() <= e.from && e.from < f.Type.End()
		}) {
			changed[f.Name.Name] = true
		}
	}
	return changed
}

func (a *adapter) replace(n ast.Node, text string) {
	a.edits = append(a.edits, edit{n.Pos(), n.End(), text})
}

// edit collects the changes of a declaration.
func (a *adapter) edit(d ast.Decl) {
	if f, ok := d.(*ast.FuncDecl); ok {
		if body, ok := bodies[f.Name.Name]; ok && a.inNet && f.Recv == nil {
			lines := a.fset.Position(f.Body.End()).Line - a.fset.Position(f.Body.Pos()).Line
			body += strings.Repeat("\n", max(lines-strings.Count(body, "\n"), 0)) // as many as before
			a.replace(f.Body, "{"+body+"}")
			return
		}
		if f.Recv != nil && a.nameIn(f.Recv.List[0].Type, insteadOfPointer) != "" {
			return // a method that a test file of package net adds to the type
		}
	}
	ast.Inspect(d, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StarExpr:
			if to := a.nameIn(n, insteadOfPointer); to != "" {
				a.replace(n, to)
				return false
			}
		case *ast.CallExpr:
			if l := a.portOf(n); l != nil {
				a.edits = append(a.edits, edit{n.Pos(), n.Pos(), "streamPort("}, edit{l.End(), n.End(), ")"})
				return false
			}
			if to := a.name(n.Fun, instead); to != "" {
				a.replace(n.Fun, to)
			}
		}
		return true
	})
}

// portOf is l in l.port(), of a method that tests add to *TCPListener.
func (a *adapter) portOf(call *ast.CallExpr) ast.Expr {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != "port" || !a.inNet {
		return nil
	}
	if as, ok := sel.X.(*ast.TypeAssertExpr); ok {
		return as.X
	}
	return sel.X
}

// nameIn is name for a pointer.
func (a *adapter) nameIn(e ast.Expr, table map[string]string) string {
	p, ok := e.(*ast.StarExpr)
	if !ok {
		return ""
	}
	return a.name(p.X, table)
}

// name is what takes the place of a name of package net, "" if nothing does.
func (a *adapter) name(e ast.Expr, table map[string]string) string {
	switch e := e.(type) {
	case *ast.Ident:
		if a.inNet {
			return table[e.Name]
		}
	case *ast.SelectorExpr:
		if id, ok := e.X.(*ast.Ident); ok && id.Name == "net" && !a.inNet && table[e.Sel.Name] != "" {
			return "net." + table[e.Sel.Name]
		}
	}
	return ""
}

// in are the changes of one file, by offset.
func (a *adapter) in(f *token.File) []edit {
	var out []edit
	for _, e := range a.edits {
		if a.fset.File(e.from) == f {
			out = append(out, edit{token.Pos(f.Offset(e.from)), token.Pos(f.Offset(e.to)), e.text})
		}
	}
	slices.SortFunc(out, func(x, y edit) int { return int(x.from - y.from) })
	return out
}

func apply(src []byte, edits []edit) []byte {
	var out []byte
	at := 0
	for _, e := range edits {
		out = append(append(out, src[at:e.from]...), e.text...)
		at = int(e.to)
	}
	return append(out, src[at:]...)
}

// onlyTests reports whether nothing but tests is declared in a file, so that the package
// does without it.
func onlyTests(name string, src []byte) (bool, error) {
	f, err := parser.ParseFile(token.NewFileSet(), name, src, parser.SkipObjectResolution)
	if err != nil {
		return false, err
	}
	for _, d := range f.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.IMPORT {
			continue
		}
		if f, ok := d.(*ast.FuncDecl); !ok || !isTest(f) {
			return false, nil
		}
	}
	return true, nil
}

// testsIn are the tests and examples of a file.
func testsIn(name string, src []byte) ([]string, error) {
	f, err := parser.ParseFile(token.NewFileSet(), name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var out []string
	for _, d := range f.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && isTest(f) {
			out = append(out, f.Name.Name)
		}
	}
	return out, nil
}

func isTest(f *ast.FuncDecl) bool {
	return f.Recv == nil && (strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Example"))
}
