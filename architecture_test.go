// The rules of ARCHITECTURE.md, as a test.
package berth_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// floors lists, for each room, the rooms of ours it may import. A room that
// is not listed here does not exist.
var floors = map[string][]string{
	"cmd/berth":                    {"internal/cli", "internal/compat/gpuscheduler", "internal/keep", "internal/run", "internal/site"},
	"cmd/berth-keep":               {"internal/keep"},
	"cmd/berth-gpu":                {"internal/fakenvml", "internal/gpu"},
	"internal/cli":                 {"internal/api", "internal/batch", "internal/compat", "internal/compat/frontend", "internal/daemon", "internal/gpu", "internal/job", "internal/jobfile", "internal/keep", "internal/reason", "internal/sched", "internal/sim", "internal/site"},
	"internal/compat":              {"internal/compat/frontend", "internal/compat/gpusched", "internal/compat/gpuscheduler", "internal/compat/mgpu", "internal/compat/tgpu"},
	"internal/compat/frontend":     {},
	"internal/compat/gpusched":     {"internal/compat/frontend"},
	"internal/compat/gpuscheduler": {"internal/compat/frontend", "internal/api", "internal/daemon", "internal/gpu", "internal/job", "internal/jobfile", "internal/sched", "internal/site"},
	"internal/compat/mgpu":         {"internal/compat/frontend", "internal/api", "internal/daemon", "internal/gpu", "internal/job", "internal/jobfile", "internal/site"},
	"internal/compat/tgpu":         {"internal/compat/frontend", "internal/api", "internal/job"},
	"internal/batch":               {"internal/machine", "internal/engine", "internal/gpu", "internal/job", "internal/jobfile", "internal/keep", "internal/run", "internal/reason", "internal/sched", "internal/site", "internal/store"},
	"internal/daemon":              {"internal/machine", "internal/api", "internal/engine", "internal/gpu", "internal/job", "internal/jobfile", "internal/keep", "internal/run", "internal/reason", "internal/sched", "internal/site", "internal/store"},
	"internal/machine":             {"internal/engine", "internal/gpu", "internal/run", "internal/sched", "internal/site", "internal/store"},
	"internal/engine":              {"internal/gpu", "internal/job", "internal/keep", "internal/predict", "internal/run", "internal/sched", "internal/store"},
	"internal/sim":                 {"internal/job", "internal/predict", "internal/reason", "internal/sched"},
	"internal/sched":               {"internal/job", "internal/reason"},
	"internal/reason":              {},
	"internal/predict":             {},
	"internal/jobfile":             {"internal/job"},
	"internal/store":               {"internal/job"},
	"internal/gpu":                 {"internal/fakenvml", "internal/keep"}, // the fake in tests
	"internal/run":                 {"internal/job", "internal/keep"},
	"internal/api":                 {"internal/job", "internal/jobfile", "internal/keep"},
	"internal/site":                {"internal/keep"},
	"internal/job":                 {},
	"internal/problem":             {},
	"internal/keep":                {},
	"internal/soak":                {"internal/api", "internal/fakenvml", "internal/job"}, // tests of the whole binary, no code
	"internal/siege":               {"internal/api", "internal/job", "internal/keep"},     // the same, by hostile users
	"internal/fakenvml":            {},                                                    // for tests
	"scripts/bench":                {"internal/api"},
	"scripts/gputest":              {"internal/api", "internal/job"},
	"scripts/seeds":                {},
}

// ground is what every room above may stand on.
var ground = []string{"internal/problem"}

// onlyIn names rooms that alone may know a library.
var onlyIn = map[string]string{
	"github.com/NVIDIA/go-nvml": "cmd/berth-gpu", // the only cgo
	"github.com/cilium/ebpf":    "internal/run",
	"berth/internal/fakenvml":   "", // tests alone
}

// pure rooms know no clock, chance, file, process or logger.
var pure = []string{"internal/job", "internal/jobfile", "internal/predict", "internal/problem", "internal/reason", "internal/sched", "internal/sim"}

var impure = []string{"os", "os/exec", "os/signal", "io/fs", "log", "log/slog", "math/rand", "math/rand/v2", "crypto/rand", "net", "net/http", "syscall", "path/filepath", "database/sql"}

// standardOnly rooms import nothing but the standard library.
var standardOnly = []string{"internal/job", "internal/keep", "internal/predict", "internal/problem", "internal/reason", "internal/sched", "internal/sim", "cmd/berth-keep"}

func eachFile(t *testing.T, visit func(room, path string, file *ast.File, set *token.FileSet)) {
	t.Helper()
	for _, top := range []string{"cmd", "internal", "scripts"} {
		err := filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			visit(filepath.Dir(path), path, file, set)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func imports(file *ast.File) []string {
	var paths []string
	for _, spec := range file.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		paths = append(paths, path)
	}
	return paths
}

func TestRoomsImportOnlyFloorsBelow(t *testing.T) {
	eachFile(t, func(room, path string, file *ast.File, _ *token.FileSet) {
		allowed, known := floors[room]
		if !known {
			t.Errorf("%s: the room %s is not in ARCHITECTURE.md", path, room)
			return
		}
		for _, imported := range imports(file) {
			ours, isOurs := strings.CutPrefix(imported, "berth/")
			if isOurs && !slices.Contains(allowed, ours) && ours != room && (!slices.Contains(ground, ours) || slices.Contains(ground, room) || room == "internal/keep") {
				t.Errorf("%s may not import %s", path, ours)
			}
			for library, home := range onlyIn {
				if strings.HasPrefix(imported, library) && room != home && !strings.HasSuffix(path, "_test.go") {
					t.Errorf("%s may not import %s", path, imported)
				}
			}
			external := strings.Contains(strings.Split(imported, "/")[0], ".")
			if external && slices.Contains(standardOnly, room) && !strings.HasSuffix(path, "_test.go") {
				t.Errorf("%s imports %s, but its room has the standard library only", path, imported)
			}
		}
	})
}

func TestPureRoomsKnowNoWorld(t *testing.T) {
	// seeds: G58
	eachFile(t, func(room, path string, file *ast.File, set *token.FileSet) {
		if !slices.Contains(pure, room) || strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, imported := range imports(file) {
			if slices.Contains(impure, imported) {
				t.Errorf("%s imports %s", path, imported)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := call.X.(*ast.Ident); ok && pkg.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "NewTimer", "NewTicker"}, call.Sel.Name) {
				t.Errorf("%s: time.%s: time is an argument here", set.Position(call.Pos()), call.Sel.Name)
			}
			return true
		})
	})
}

// TestStatesChangeInOnePlace: nobody assigns a job's state but package job,
// and the store when it reads one back. (A supervisor's record has a state of its own.)
func TestStatesChangeInOnePlace(t *testing.T) {
	eachFile(t, func(room, path string, file *ast.File, set *token.FileSet) {
		if slices.Contains([]string{"internal/job", "internal/store", "internal/keep"}, room) || strings.HasSuffix(path, "_test.go") {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			assign, ok := n.(*ast.AssignStmt)
			if !ok {
				return true
			}
			for _, left := range assign.Lhs {
				if sel, ok := left.(*ast.SelectorExpr); ok && sel.Sel.Name == "State" {
					t.Errorf("%s assigns a state; use Job.To", set.Position(sel.Pos()))
				}
			}
			return true
		})
	})
}

func TestEveryRoomSaysWhatItIsFor(t *testing.T) {
	documented := map[string]bool{}
	eachFile(t, func(room, _ string, file *ast.File, _ *token.FileSet) {
		if file.Doc != nil && len(file.Doc.Text()) > 60 {
			documented[room] = true
		}
	})
	architecture, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	for room := range floors {
		if _, err := os.Stat(room); err != nil {
			continue
		}
		if !documented[room] && !strings.HasPrefix(room, "cmd/") {
			t.Errorf("%s has no package comment that says what it may not do", room)
		}
		if !strings.Contains(string(architecture), "`"+room+"`") {
			t.Errorf("%s is not in ARCHITECTURE.md", room)
		}
	}
}

func TestNoSleepInTests(t *testing.T) {
	eachFile(t, func(_, path string, file *ast.File, set *token.FileSet) {
		if !strings.HasSuffix(path, "_test.go") {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sleep" {
				if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "time" {
					t.Errorf("%s sleeps for luck; wait for a condition", set.Position(sel.Pos()))
				}
			}
			return true
		})
	})
}
