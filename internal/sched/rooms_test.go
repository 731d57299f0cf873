package sched

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFilesUseOnlyRoomsAbove reads the rooms in doc.go.
func TestFilesUseOnlyRoomsAbove(t *testing.T) {
	rooms := map[string]int{"doc": -1}
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		if name, files, ok := strings.Cut(line, ": "); ok && strings.HasPrefix(name, "//\t") {
			for _, file := range strings.Fields(files) {
				rooms[file] = i
			}
		}
	}
	set := token.NewFileSet()
	var files []*ast.File
	paths, _ := filepath.Glob("*.go")
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		if _, listed := rooms[strings.TrimSuffix(path, ".go")]; !listed {
			t.Errorf("%s is in no room of doc.go", path)
		}
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	room := func(pos token.Pos) (string, int) {
		name := strings.TrimSuffix(filepath.Base(set.Position(pos).Filename), ".go")
		return name, rooms[name]
	}
	// Other packages are empty here, so that only what is defined in this one is known.
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	config := types.Config{Importer: nothing{}, Error: func(error) {}}
	pkg, _ := config.Check("sched", set, files, info)
	against := 0
	for ident, object := range info.Uses {
		if object.Pkg() != pkg || !object.Pos().IsValid() {
			continue
		}
		from, below := room(ident.Pos())
		to, above := room(object.Pos())
		if above > below {
			against++
			t.Errorf("%s: %s uses %s of %s", set.Position(ident.Pos()), from, ident.Name, to)
		}
	}
	if len(info.Uses) < 1000 {
		t.Errorf("only %d names were looked at", len(info.Uses))
	}
}

// nothing imports empty packages.
type nothing struct{}

func (nothing) Import(path string) (*types.Package, error) {
	pkg := types.NewPackage(path, filepath.Base(path))
	pkg.MarkComplete()
	return pkg, nil
}
