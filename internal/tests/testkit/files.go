package testkit

import (
	"go/ast"
	gobuild "go/build"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// FilesInOrder fails the test if a file of the package in the working directory
// uses what a later one declares. Its doc.go names the files in groups, in the
// order to read them:
//
//	//	what fits where: card request machine fit
//	//	what is decided: decision reserve preempt decide
//
// Files of one group may use one another, but at most largestCycle files may form
// a cycle. A line with a deeper indent continues the group above it.
func FilesInOrder(t testing.TB, largestCycle int) {
	t.Helper()
	groups := fileGroups(t)
	uses, looked := fileUses(t, groups)
	for _, use := range uses.at {
		if groups[use.to] > groups[use.from] {
			t.Errorf("%s: %s uses %s of %s", use.pos, use.from, use.name, use.to)
		}
	}
	for _, cycle := range uses.cycles() {
		if len(cycle) > largestCycle {
			t.Errorf("%d files form a cycle: %s", len(cycle), strings.Join(cycle, " "))
		}
	}
	if looked == 0 {
		t.Error("no name was looked at")
	}
}

// fileGroups reads doc.go: of each file the number of its group.
func fileGroups(t testing.TB) map[string]int {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	groups := map[string]int{}
	group, listing := 0, false
	for line := range strings.Lines(string(text)) {
		rest, indented := strings.CutPrefix(line, "//\t")
		_, files, named := strings.Cut(rest, ": ")
		switch {
		case indented && listing && strings.TrimLeft(rest, " \t") != rest:
			files = rest
		case indented && named:
			group, listing = group+1, true
		default:
			listing = false
			continue
		}
		for file := range strings.FieldsSeq(files) {
			if _, twice := groups[file]; twice {
				t.Errorf("doc.go names %s twice", file)
			}
			if _, err := os.Stat(file + ".go"); err != nil {
				t.Errorf("doc.go names %s: %v", file, err)
			}
			groups[file] = group
		}
	}
	return groups
}

// fileUse is one use of a name that another file declares.
type fileUse struct {
	from, to, name string
	pos            token.Position
}

// fileGraph has every use, and between which files there is one.
type fileGraph struct {
	at    []fileUse
	edges map[string]map[string]bool
}

// fileUses type-checks the package alone. Other packages are empty, so that only
// names declared in this one are known.
func fileUses(t testing.TB, groups map[string]int) (graph fileGraph, looked int) {
	set := token.NewFileSet()
	var files []*ast.File
	paths, _ := filepath.Glob("*.go")
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") || path == "doc.go" {
			continue
		}
		if _, listed := groups[strings.TrimSuffix(path, ".go")]; !listed {
			t.Errorf("doc.go does not name %s", path)
		}
		if here, err := gobuild.Default.MatchFile(".", path); err != nil || !here {
			continue // another system's, or another build's
		}
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: emptyPackages{}, Error: func(error) {}}
	pkg, _ := config.Check("checked", set, files, info)
	name := func(pos token.Pos) string {
		return strings.TrimSuffix(filepath.Base(set.Position(pos).Filename), ".go")
	}
	graph.edges = map[string]map[string]bool{}
	for ident, object := range info.Uses {
		if object.Pkg() != pkg || !object.Pos().IsValid() {
			continue
		}
		looked++
		from, to := name(ident.Pos()), name(object.Pos())
		if from == to {
			continue
		}
		graph.at = append(graph.at, fileUse{from, to, ident.Name, set.Position(ident.Pos())})
		if graph.edges[from] == nil {
			graph.edges[from] = map[string]bool{}
		}
		graph.edges[from][to] = true
	}
	slices.SortFunc(graph.at, func(a, b fileUse) int { return strings.Compare(a.pos.String(), b.pos.String()) })
	return graph, looked
}

// cycles returns the files that can reach one another, in sets of two or more.
func (g fileGraph) cycles() (sets [][]string) {
	reaches := map[string]map[string]bool{}
	for file := range g.edges {
		seen := map[string]bool{}
		for open := []string{file}; len(open) > 0; {
			next := open[len(open)-1]
			open = open[:len(open)-1]
			for to := range g.edges[next] {
				if !seen[to] {
					seen[to] = true
					open = append(open, to)
				}
			}
		}
		reaches[file] = seen
	}
	done := map[string]bool{}
	for file, seen := range reaches {
		if done[file] || !seen[file] {
			continue
		}
		var set []string
		for other := range seen {
			if reaches[other][file] {
				set = append(set, other)
				done[other] = true
			}
		}
		slices.Sort(set)
		sets = append(sets, set)
	}
	return sets
}

// emptyPackages imports packages that declare nothing.
type emptyPackages struct{}

func (emptyPackages) Import(path string) (*types.Package, error) {
	pkg := types.NewPackage(path, filepath.Base(path))
	pkg.MarkComplete()
	return pkg, nil
}
