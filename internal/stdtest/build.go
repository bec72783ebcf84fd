package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// goPackage is a package of the standard library as the go command lists it.
type goPackage struct {
	ImportPath, Name, Dir     string
	TestGoFiles, XTestGoFiles []string
}

// listPackages asks the go command, which knows what this system builds.
func listPackages(paths []string) (map[string]*goPackage, error) {
	out, err := goCommand(append([]string{"list", "-json=ImportPath,Name,Dir,TestGoFiles,XTestGoFiles", "--"}, paths...)...)
	if err != nil {
		return nil, err
	}
	all := map[string]*goPackage{}
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		p := new(goPackage)
		if err := dec.Decode(p); err != nil {
			return nil, err
		}
		all[p.ImportPath] = p
	}
	return all, nil
}

func goCommand(args ...string) ([]byte, error) {
	out, err := exec.Command("go", args...).Output()
	if failed, ok := err.(*exec.ExitError); ok {
		err = fmt.Errorf("go %s: %w\n%s%s", strings.Join(args, " "), err, out, failed.Stderr)
	}
	return out, err
}

// read returns the contents of files of the package.
func (p *goPackage) read(names []string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, name := range names {
		src, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			return nil, err
		}
		files[name] = src
	}
	return files, nil
}

func (p *goPackage) testFiles() []string { return slices.Concat(p.TestGoFiles, p.XTestGoFiles) }

// An overlay is what the go command's -overlay replaces: by path, the new contents, nil
// for a file that goes.
type overlay map[string][]byte

// hookOverlay puts the hooks into package net and, if they are to be set, what sets
// them into the tests of p.
func hookOverlay(net, p *goPackage, set bool) (overlay, error) {
	dial := filepath.Join(net.Dir, "dial.go")
	src, err := os.ReadFile(dial)
	if err != nil {
		return nil, err
	}
	if src, err = hookedNet(src); err != nil {
		return nil, err
	}
	o := overlay{dial: src, filepath.Join(net.Dir, "rdmanet_over.go"): []byte(netOver)}
	if !set {
		return o, nil
	}
	o[filepath.Join(p.Dir, "rdmanet_over_test.go")] = overTest(p.Name)
	return o, o.publish()
}

// publish gives package over a place from which the standard library may import it:
// what is internal to this module is not for others. The place is in the overlay only.
func (o overlay) publish() error {
	mod, err := goCommand("env", "GOMOD")
	if err != nil {
		return err
	}
	root := filepath.Dir(strings.TrimSpace(string(mod)))
	files, err := filepath.Glob(filepath.Join(root, "internal", "stdtest", "over", "*.go"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("package over is not below %s: %w", root, err)
	}
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		src, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		o[filepath.Join(root, filepath.FromSlash(overDir), filepath.Base(f))] = src
	}
	return nil
}

// adapt adds the test files of p that change for the selection's tests. Files that are
// out, and that others can do without, would not build with what has changed: they go.
func (o overlay) adapt(p *goPackage, sel *selection) error {
	for pkg, list := range map[string][]string{p.Name: p.TestGoFiles, p.Name + "_test": p.XTestGoFiles} {
		files, err := p.read(list)
		if err != nil {
			return err
		}
		for name, src := range files {
			if !slices.Contains(names(sel.out), name) {
				continue
			}
			if alone, err := onlyTests(name, src); err != nil {
				return err
			} else if alone {
				delete(files, name)
				o[filepath.Join(p.Dir, name)] = nil
			}
		}
		changed, err := adapted(pkg, files, names(sel.adapt))
		if err != nil {
			return err
		}
		for name, src := range changed {
			o[filepath.Join(p.Dir, name)] = src
		}
	}
	return nil
}

// write puts the overlay into dir and returns the file to give to -overlay.
func (o overlay) write(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	replace := map[string]string{}
	for path, src := range o {
		if src == nil {
			replace[path] = ""
			continue
		}
		to := filepath.Join(dir, fmt.Sprintf("%02d_%s", len(replace), filepath.Base(path)))
		if err := os.WriteFile(to, src, 0o644); err != nil {
			return "", err
		}
		replace[path] = to
	}
	list, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "\t")
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, list, 0o644)
}

// build makes a test binary, dir/test, of p and returns its name.
func (o overlay) build(dir string, p *goPackage, race bool) (string, error) {
	list, err := o.write(dir)
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "test")
	args := []string{"test", "-c", "-vet=off", "-overlay", list, "-o", bin}
	if race {
		args = append(args, "-race")
	}
	_, err = goCommand(append(args, p.ImportPath)...)
	return bin, err
}
