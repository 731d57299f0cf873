package berth_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What one person can hold in mind: files that use one another in a circle are
// one thing, and so is a type with its methods.
const (
	mostInACircle = 8
	mostMethods   = 25
)

func TestTheEngineIsReadInParts(t *testing.T) {
	read := 0
	for pkg := range architecture(t) {
		if !within(pkg, "internal/queue/engine") {
			continue
		}
		uses, methods := filesOf(t, pkg)
		for typ, n := range methods {
			if n > mostMethods {
				t.Errorf("%s: %s has %d methods, and at most %d are allowed", pkg, typ, n, mostMethods)
			}
		}
		for file := range uses {
			circle := []string{}
			for other := range uses {
				if reaches(uses, file, other) && reaches(uses, other, file) {
					circle = append(circle, other)
				}
			}
			read++
			if slices.Sort(circle); len(circle) > mostInACircle && circle[0] == file {
				t.Errorf("%s: %d files use one another in a circle: %s", pkg, len(circle), strings.Join(circle, " "))
			}
		}
	}
	if read < 50 {
		t.Errorf("only %d files were read", read)
	}
}

// filesOf is which file of a package uses which, and how many methods its types
// have.
func filesOf(t *testing.T, dir string) (uses map[string]map[string]bool, methods map[string]int) {
	t.Helper()
	set := token.NewFileSet()
	var files []*ast.File
	uses, methods = map[string]map[string]bool{}, map[string]int{}
	paths, _ := filepath.Glob(filepath.Join(dir, "*.go"))
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "fault_berthfault.go") {
			continue
		}
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
		uses[filepath.Base(path)] = map[string]bool{}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv != nil {
				methods[strings.TrimPrefix(types.ExprString(f.Recv.List[0].Type), "*")]++
			}
		}
	}
	// Other packages are empty here, so that only what is defined in this one is known.
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: empty{}, Error: func(error) {}}
	pkg, _ := config.Check(dir, set, files, info)
	for ident, object := range info.Uses {
		if object.Pkg() == pkg && object.Pos().IsValid() {
			uses[filepath.Base(set.Position(ident.Pos()).Filename)][filepath.Base(set.Position(object.Pos()).Filename)] = true
		}
	}
	return uses, methods
}

func reaches(uses map[string]map[string]bool, from, to string) bool {
	seen := map[string]bool{from: true}
	for next := []string{from}; len(next) > 0; next = next[1:] {
		if next[0] == to {
			return true
		}
		for file := range uses[next[0]] {
			if !seen[file] {
				seen[file] = true
				next = append(next, file)
			}
		}
	}
	return false
}

// empty imports empty packages.
type empty struct{}

func (empty) Import(path string) (*types.Package, error) {
	pkg := types.NewPackage(path, filepath.Base(path))
	pkg.MarkComplete()
	return pkg, nil
}
