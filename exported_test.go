package berth_test

import (
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestWhatIsExportedIsUsed: a name that no other package uses is the
// package's own, and begins with a small letter. What belongs to a name
// that is said counts as said: the types of its parameters, results and fields,
// and the constants of its group or type.
func TestWhatIsExportedIsUsed(t *testing.T) {
	packages := map[string]*exports{}
	said := map[string]bool{} // "internal/job.Spec", by other packages
	eachFile(t, func(s source) {
		if packages[s.pkg] == nil {
			packages[s.pkg] = &exports{at: map[string]string{}, with: map[string][]string{}}
		}
		if !s.inTest() {
			packages[s.pkg].declare(s)
		}
		says(s, said)
	})
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		if !strings.HasPrefix(name, "internal/") || slices.Contains(vocabulary, name) {
			continue
		}
		for unused, at := range packages[name].unused(name, said) {
			t.Errorf("%s: %s.%s is exported, but no other package uses it", at, name, unused)
		}
	}
}

// sayable names may be exported though nobody else says them, each for a reason.
var sayable = map[string]string{
	"internal/cli/session.Version":   "the linker sets it",
	"internal/queue/daemon.Daemon":   "what api serves; its methods are that contract",
	"internal/queue/engine.Recover":  "the one function that ARCHITECTURE.md names of it",
	"internal/sched.Feasible":        "a part of Decide that can be asked alone",
	"internal/sched.Expect":          "a part of Explain that can be asked alone",
	"internal/sched.Reasons":         "a part of Explain that can be asked alone",
	"internal/sched.SnapshotVersion": "what a snapshot says of itself",
	"internal/job.InjectLocal":       "a value of a job's field",
}

// vocabulary packages are whole, whoever says which word.
var vocabulary = []string{"internal/text"}

// exports are the exported names of a package: where each is declared, and which
// others are said with it.
type exports struct {
	at   map[string]string
	with map[string][]string
}

func (e *exports) declare(s source) {
	for _, decl := range s.file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if !d.Name.IsExported() {
				continue
			}
			if d.Recv != nil { // said with its type
				for _, of := range mentioned(d.Recv) {
					e.with[of] = append(e.with[of], mentioned(d.Type)...)
				}
				continue
			}
			e.add(s, d.Name, mentioned(d.Type))
		case *ast.GenDecl:
			var group, types []string
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					e.add(s, spec.Name, mentioned(spec.Type))
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						group = append(group, name.Name)
						e.add(s, name, mentioned(spec.Type))
					}
					types = append(types, mentioned(spec.Type)...)
				}
			}
			if d.Tok == token.CONST {
				for _, name := range slices.Concat(group, types) {
					e.with[name] = append(e.with[name], group...)
				}
			}
		}
	}
}

func (e *exports) add(s source, name *ast.Ident, with []string) {
	if name.IsExported() {
		e.at[name.Name] = s.set.Position(name.Pos()).String()
	}
	e.with[name.Name] = append(e.with[name.Name], with...)
}

// mentioned are the names of the same package in a type, without those in fields
// that others cannot see.
func mentioned(node ast.Node) (names []string) {
	if node == nil || node == ast.Expr(nil) {
		return nil
	}
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			names = append(names, n.Name)
		case *ast.SelectorExpr:
			return false
		case *ast.StructType:
			for _, field := range n.Fields.List {
				if len(field.Names) == 0 || slices.ContainsFunc(field.Names, (*ast.Ident).IsExported) {
					names = append(names, mentioned(field.Type)...)
				}
			}
			return false
		}
		return true
	})
	return names
}

// unused are the names that nobody else says, with their places.
func (e *exports) unused(pkg string, said map[string]bool) map[string]string {
	known := map[string]bool{}
	var say func(name string)
	say = func(name string) {
		if !known[name] {
			known[name] = true
			for _, other := range e.with[name] {
				say(other)
			}
		}
	}
	left := maps.Clone(e.at)
	for name := range e.at {
		if said[pkg+"."+name] || sayable[pkg+"."+name] != "" {
			say(name)
		}
	}
	maps.DeleteFunc(left, func(name, _ string) bool { return known[name] })
	return left
}

// says notes which names of other packages a file has.
func says(s source, said map[string]bool) {
	packages := map[string]string{} // by the word they go by in this file
	for _, spec := range s.file.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		pkg, ours := strings.CutPrefix(path, "berth/")
		if !ours {
			continue // a test from outside, as cli_test, is another package too
		}
		word := pkg[strings.LastIndexByte(pkg, '/')+1:]
		if spec.Name != nil {
			word = spec.Name.Name
		}
		packages[word] = pkg
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if word, ok := sel.X.(*ast.Ident); ok && packages[word.Name] != "" {
				said[packages[word.Name]+"."+sel.Sel.Name] = true
			}
		}
		return true
	})
}
