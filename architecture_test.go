// The rules of ARCHITECTURE.md, as a test.
package berth_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// The table in ARCHITECTURE.md declares each package: its layer, which may be a
// fraction, and whether it is pure. A nested package has a row of its own.
//
// toolLayer is that of the tools and the tests of the whole: they may know what
// their users know, and nothing that decides.
const toolLayer = 4

// knownOnlyBy names the packages that alone may know a package or a library. The
// layers say what a package could know; these are kept from it all the same.
var knownOnlyBy = map[string][]string{
	"github.com/NVIDIA/go-nvml":   {"cmd/berth-gpu"}, // the only cgo
	"github.com/cilium/ebpf":      {"internal/machine/run"},
	"github.com/prometheus":       {"internal/api/metrics"},   // tests alone
	"github.com/chromedp":         {"internal/tests/browser"}, // tests alone
	"berth/internal/queue/store":  {"internal/queue/engine", "internal/queue", "internal/queue/batch", "internal/queue/daemon", "internal/slurm/node"},
	"berth/internal/queue/engine": {"internal/queue", "internal/queue/batch", "internal/slurm/cluster", "internal/queue/daemon", "internal/slurm/node"},
	"berth/internal/machine/run":  {"internal/queue/engine", "internal/queue", "internal/queue/batch", "internal/queue/daemon", "internal/slurm/node", "cmd/berth"},
}

// mayNotKnow names what a package may not know although its layer would allow it.
var mayNotKnow = map[string][]string{
	"internal/machine/gpu":  {"berth/internal/job"},
	"internal/machine/site": {"berth/internal/job"},
	"internal/machine/keep": {"berth/internal"},
	"cmd/berth-gpu":         {"berth/internal/job", "berth/internal/sched"},
	"cmd/berth-keep":        {"berth/internal/job", "berth/internal/api"},
}

// standardOnly packages import no library.
var standardOnly = []string{"cmd/berth-keep", "internal/job", "internal/job/reason", "internal/machine/keep", "internal/sched", "internal/sched/predict", "internal/sched/sim", "internal/text", "internal/text/problem"}

// impure packages tell of a clock, chance, a file, a process or a log.
var impure = []string{"os", "os/exec", "os/signal", "io/fs", "log", "log/slog", "math/rand", "math/rand/v2", "crypto/rand", "net", "net/http", "syscall", "path/filepath", "database/sql"}

// row is one package of the table, or one of the tools and tests below it.
type row struct {
	layer float64
	pure  bool
	tool  bool
}

// readPackages takes the table from the text of ARCHITECTURE.md.
func readPackages(text string) (map[string]row, error) {
	named := regexp.MustCompile("`((?:cmd|internal|scripts)/[^`]+|docs)`")
	packages := map[string]row{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "Tests of the whole, and tools:") {
			for _, name := range named.FindAllStringSubmatch(line, -1) {
				packages[name[1]] = row{layer: toolLayer, tool: true}
			}
		}
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !named.MatchString(cells[1]) {
			continue
		}
		layer, err := strconv.ParseFloat(strings.TrimSpace(cells[2]), 64)
		if err != nil {
			return nil, fmt.Errorf("%q is no layer: %s", cells[2], line)
		}
		for _, name := range named.FindAllStringSubmatch(cells[1], -1) {
			if _, twice := packages[name[1]]; twice {
				return nil, fmt.Errorf("%s has two rows", name[1])
			}
			packages[name[1]] = row{layer: layer, pure: strings.Contains(cells[1], "*pure*")}
		}
	}
	return packages, nil
}

// objection says why a file of a package may not import a path; "" if it may.
func objection(packages map[string]row, from, path string, inTest bool) string {
	r := packages[from]
	for known, by := range knownOnlyBy {
		if within(path, known) && !within("berth/"+from, known) && !slices.ContainsFunc(by, func(above string) bool { return within(from, above) }) && !inTest {
			return "only " + strings.Join(by, ", ") + " may know it"
		}
	}
	for _, kept := range mayNotKnow[from] {
		if within(path, kept) && path != "berth/"+from {
			return "that package is kept from it"
		}
	}
	to, ours := strings.CutPrefix(path, "berth/")
	external := strings.Contains(strings.Split(path, "/")[0], ".")
	switch target, exists := packages[to]; {
	case !inTest && external && slices.Contains(standardOnly, from):
		return "it has the standard library only"
	case !inTest && r.pure && slices.Contains(impure, path):
		return "it is pure"
	case !ours || to == from:
		return ""
	case !exists:
		return "there is no such package in ARCHITECTURE.md"
	case target.tool && inTest:
		return ""
	case target.tool:
		return "it is for tests alone"
	case r.pure && !target.pure && !inTest:
		return "it is pure, and that one is not"
	case target.layer > r.layer:
		return fmt.Sprintf("it runs upwards, from layer %v to %v", r.layer, target.layer)
	case target.layer == r.layer:
		return fmt.Sprintf("it runs sideways, on layer %v", r.layer)
	}
	return ""
}

// within tells whether a package is that one or below it.
func within(path, above string) bool {
	return path == above || strings.HasPrefix(path, above+"/")
}

// source is a file of ours.
type source struct {
	pkg, path string
	file      *ast.File
	set       *token.FileSet
}

func (s source) inTest() bool { return strings.HasSuffix(s.path, "_test.go") }

// sources are all files, parsed once.
var sources = sync.OnceValues(func() (list []source, err error) {
	for _, top := range []string{"cmd", "internal", "scripts", "docs"} {
		err = errors.Join(err, filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
			list = append(list, source{filepath.Dir(path), path, file, set})
			return err
		}))
	}
	return list, err
})

func eachFile(t *testing.T, visit func(source)) {
	t.Helper()
	list, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		visit(s)
	}
}

func architecture(t *testing.T) map[string]row {
	t.Helper()
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	packages, err := readPackages(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

func TestPackagesImportOnlyLayersBelow(t *testing.T) {
	packages := architecture(t)
	eachFile(t, func(s source) {
		if _, known := packages[s.pkg]; !known {
			t.Errorf("%s: the package %s is not in ARCHITECTURE.md", s.path, s.pkg)
			return
		}
		for _, spec := range s.file.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			if why := objection(packages, s.pkg, path, s.inTest()); why != "" {
				t.Errorf("%s may not import %s: %s", s.path, path, why)
			}
		}
	})
}

// TestTheRuleOnImports: the rule itself, on a small table.
func TestTheRuleOnImports(t *testing.T) {
	packages, err := readPackages("| `internal/cli` | 5 | |\n| `internal/machine/run` | 2.5 | |\n| `internal/sched` *pure*, `internal/sched/fit` *pure* | 2 | |\n| `internal/machine/gpu` | 2 | |\n| `internal/job` *pure* | 1 | |\n" +
		"Tests of the whole, and tools: `internal/tests/soak` and `internal/tests/fakenvml`.\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		from, path string
		inTest     bool
		want       string
	}{
		{"internal/cli", "berth/internal/sched/fit", false, ""},
		{"internal/machine/run", "berth/internal/machine/gpu", false, ""},
		{"internal/sched", "berth/internal/job", false, ""},
		{"internal/cli", "os", false, ""},
		{"internal/sched", "berth/internal/cli", true, "upwards"},
		{"internal/machine/gpu", "berth/internal/machine/run", true, "upwards"},
		{"internal/sched", "berth/internal/sched/fit", true, "sideways"},
		{"internal/machine/gpu", "berth/internal/sched", false, "sideways"},
		{"internal/cli", "berth/internal/other", false, "no such package"},
		{"internal/cli", "berth/internal/machine/run", false, "may know it"},
		{"internal/cli", "berth/internal/machine/run", true, ""},
		{"internal/machine/run", "github.com/cilium/ebpf/link", false, ""},
		{"internal/machine/gpu", "github.com/cilium/ebpf/link", false, "may know it"},
		{"internal/machine/gpu", "berth/internal/job", false, "kept from"},
		{"internal/machine/gpu", "berth/internal/tests/fakenvml", false, "tests alone"},
		{"internal/machine/gpu", "berth/internal/tests/fakenvml", true, ""},
		{"internal/tests/soak", "berth/internal/job", true, ""},
		{"internal/tests/soak", "berth/internal/cli", true, "upwards"},
		{"internal/sched/fit", "time", false, ""},
		{"internal/sched/fit", "os", false, "pure"},
		{"internal/sched/fit", "berth/internal/machine/gpu", false, "that one is not"},
		{"internal/sched", "github.com/a/b", false, "standard library"},
	} {
		if got := objection(packages, row.from, row.path, row.inTest); !strings.Contains(got, row.want) || (got == "") != (row.want == "") {
			t.Errorf("%s imports %s (in a test: %v): %q, want %q", row.from, row.path, row.inTest, got, row.want)
		}
	}
}

// TestPurePackagesKnowNoWorld, nor goroutines: scripts/test.sh tests them without the
// race detector.
func TestPurePackagesKnowNoWorld(t *testing.T) {
	// seeds: G58
	packages := architecture(t)
	eachFile(t, func(s source) {
		if !packages[s.pkg].pure {
			return
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if start, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s: a goroutine: a pure package starts none", s.set.Position(start.Pos()))
			}
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := call.X.(*ast.Ident); ok && !s.inTest() && pkg.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "NewTimer", "NewTicker"}, call.Sel.Name) {
				t.Errorf("%s: time.%s: time is an argument here", s.set.Position(call.Pos()), call.Sel.Name)
			}
			return true
		})
	})
}

// TestFrontEndsPrepareNothing: berth is each of them and hardly ever called as
// one, so that what they need is made when they are.
func TestFrontEndsPrepareNothing(t *testing.T) {
	eachFile(t, func(s source) {
		if !within(s.pkg, "internal/compat") || s.inTest() {
			return
		}
		for _, decl := range s.file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Name.Name == "init" && f.Recv == nil {
				t.Errorf("%s: init runs at every start of berth", s.set.Position(f.Pos()))
			}
			vars, ok := decl.(*ast.GenDecl)
			if !ok || vars.Tok != token.VAR {
				continue
			}
			ast.Inspect(vars, func(n ast.Node) bool {
				switch made := n.(type) {
				case *ast.FuncLit:
					return false
				case *ast.CallExpr:
					if fun, ok := made.Fun.(*ast.SelectorExpr); !ok || fun.Sel.Name != "New" { // an error
						t.Errorf("%s: made at every start of berth", s.set.Position(made.Pos()))
					}
				case *ast.MapType:
					t.Errorf("%s: filled at every start of berth", s.set.Position(made.Pos()))
				}
				return true
			})
		}
	})
}

// TestStatesChangeInOnePlace: nobody assigns a job's state but package job,
// and the store when it reads one back. (A supervisor's record has a state of its own.)
func TestStatesChangeInOnePlace(t *testing.T) {
	eachFile(t, func(s source) {
		if slices.Contains([]string{"internal/job", "internal/queue/store", "internal/machine/keep"}, s.pkg) || s.inTest() {
			return
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			assign, ok := n.(*ast.AssignStmt)
			if !ok {
				return true
			}
			for _, left := range assign.Lhs {
				if sel, ok := left.(*ast.SelectorExpr); ok && sel.Sel.Name == "State" {
					t.Errorf("%s assigns a state; use Job.To", s.set.Position(sel.Pos()))
				}
			}
			return true
		})
	})
}

func TestEveryRoomSaysWhatItIsFor(t *testing.T) {
	documented, there := map[string]bool{}, map[string]bool{}
	eachFile(t, func(s source) {
		there[s.pkg] = true
		if s.file.Doc != nil && len(s.file.Doc.Text()) > 60 {
			documented[s.pkg] = true
		}
	})
	for pkg := range architecture(t) {
		if !there[pkg] {
			t.Errorf("ARCHITECTURE.md lists %s, but there is no such package", pkg)
		} else if !documented[pkg] && !strings.HasPrefix(pkg, "cmd/") {
			t.Errorf("%s has no package comment that says what it may not do", pkg)
		}
	}
}

func TestNoSleepInTests(t *testing.T) {
	eachFile(t, func(s source) {
		if !s.inTest() {
			return
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sleep" {
				if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "time" {
					t.Errorf("%s sleeps for luck; wait for a condition", s.set.Position(sel.Pos()))
				}
			}
			return true
		})
	})
}
