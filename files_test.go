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

// inParts are the packages whose files form no large circle.
var inParts = []string{"internal/queue/engine", "internal/queue/messages", "internal/queue/people", "internal/queue/ports", "internal/queue/stats", "internal/queue/daemon"}

func TestLargePackagesAreReadInParts(t *testing.T) {
	read := 0
	for pkg := range architecture(t) {
		if !slices.ContainsFunc(inParts, func(above string) bool { return within(pkg, above) }) {
			continue
		}
		uses := filesOf(t, pkg)
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

// large types have more methods than others, each for a reason.
var large = map[string]string{
	"internal/queue/store.Store": "most of its methods are one query each",
	"internal/sched.decision":    "what one decision does with a job; each step needs what all others left",

	"internal/slurm/node.node": "to be taken apart",
}

func TestOnePersonCanHoldATypeInMind(t *testing.T) {
	methods := map[string]int{}
	eachFile(t, func(s source) {
		if s.inTest() || !within(s.pkg, "internal") && !within(s.pkg, "cmd") || within(s.pkg, "internal/tests") {
			return
		}
		for _, decl := range s.file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv != nil {
				name, _, _ := strings.Cut(strings.TrimPrefix(types.ExprString(f.Recv.List[0].Type), "*"), "[")
				methods[s.pkg+"."+name]++
			}
		}
	})
	for name, n := range methods {
		switch reason := large[name]; {
		case n > mostMethods && reason == "":
			t.Errorf("%s has %d methods, and at most %d are allowed", name, n, mostMethods)
		case n <= mostMethods && reason != "":
			t.Errorf("%s has only %d methods: it needs no exception", name, n)
		}
	}
	if len(methods) < 500 {
		t.Errorf("only %d types were found", len(methods))
	}
}

// A comment that names something else is what a rename left behind.
func TestACommentBeginsWithTheNameOfWhatItIsAbout(t *testing.T) {
	eachFile(t, func(s source) {
		if s.inTest() || !within(s.pkg, "internal") {
			return
		}
		for _, decl := range s.file.Decls {
			doc, name := (*ast.CommentGroup)(nil), ""
			switch d := decl.(type) {
			case *ast.FuncDecl:
				doc, name = d.Doc, d.Name.Name
			case *ast.GenDecl:
				if spec, is := d.Specs[0].(*ast.TypeSpec); is && !d.Lparen.IsValid() {
					doc, name = d.Doc, spec.Name.Name
				}
			}
			first, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(doc.Text(), "A "), "The "), " ")
			if strings.TrimRight(first, ".,:\n") != name && doc != nil && name != "init" {
				t.Errorf("%s: the comment begins with %s", s.set.Position(doc.Pos()), first)
			}
		}
	})
}

// filesOf is which file of a package uses which.
func filesOf(t *testing.T, dir string) (uses map[string]map[string]bool) {
	t.Helper()
	set := token.NewFileSet()
	var files []*ast.File
	uses = map[string]map[string]bool{}
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
	return uses
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
