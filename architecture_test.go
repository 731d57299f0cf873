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

// The rooms table of ARCHITECTURE.md declares each room: its floor, and whether
// it is pure. A nested room has a row of its own; a floor may be a fraction.
//
// besideFloor is where the programs and tests stand that are beside the house:
// they may know what their users know, and nothing that decides.
const besideFloor = 4

// knownOnlyBy names the rooms that alone may know a room or a library. The
// floors say what a room could know; these are kept from it all the same.
var knownOnlyBy = map[string][]string{
	"github.com/NVIDIA/go-nvml":       {"cmd/berth-gpu"}, // the only cgo
	"github.com/cilium/ebpf":          {"internal/machine/run"},
	"github.com/prometheus":           {"internal/api/metrics"},
	"github.com/modelcontextprotocol": {"internal/api/mcp"},
	"github.com/chromedp":             {"internal/tests/browser"}, // tests alone
	"berth/internal/queue/store":      {"internal/queue/engine", "internal/queue", "internal/queue/batch", "internal/queue/daemon", "internal/slurm/node"},
	"berth/internal/queue/engine":     {"internal/queue", "internal/queue/batch", "internal/slurm/cluster", "internal/queue/daemon", "internal/slurm/node"},
	"berth/internal/machine/run":      {"internal/queue/engine", "internal/queue", "internal/queue/batch", "internal/queue/daemon", "internal/slurm/node", "cmd/berth"},
}

// mayNotKnow names what a room is kept from though it stands above it.
var mayNotKnow = map[string][]string{
	"internal/machine/gpu":  {"berth/internal/job"},
	"internal/machine/site": {"berth/internal/job"},
	"internal/machine/keep": {"berth/internal"},
	"cmd/berth-gpu":         {"berth/internal/job", "berth/internal/sched"},
	"cmd/berth-keep":        {"berth/internal/job", "berth/internal/api"},
}

// standardOnly rooms import no library.
var standardOnly = []string{"cmd/berth-keep", "internal/job", "internal/job/reason", "internal/machine/keep", "internal/sched", "internal/sched/predict", "internal/sched/sim", "internal/text", "internal/text/problem"}

// impure packages tell of a clock, chance, a file, a process or a log.
var impure = []string{"os", "os/exec", "os/signal", "io/fs", "log", "log/slog", "math/rand", "math/rand/v2", "crypto/rand", "net", "net/http", "syscall", "path/filepath", "database/sql"}

// room is one row of the table, or one name of those beside the house.
type room struct {
	floor  float64
	pure   bool
	beside bool
}

// readRooms takes the rooms from the text of ARCHITECTURE.md.
func readRooms(text string) (map[string]room, error) {
	named := regexp.MustCompile("`((?:cmd|internal|scripts)/[^`]+|docs)`")
	rooms := map[string]room{}
	floor := 0.0
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "Beside the house:") {
			for _, name := range named.FindAllStringSubmatch(line, -1) {
				rooms[name[1]] = room{floor: besideFloor, beside: true}
			}
		}
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !named.MatchString(cells[2]) {
			continue
		}
		if said := strings.TrimSpace(cells[1]); said != "" {
			var err error
			if floor, err = strconv.ParseFloat(said, 64); err != nil {
				return nil, fmt.Errorf("%q is no floor: %s", said, line)
			}
		}
		for _, name := range named.FindAllStringSubmatch(cells[2], -1) {
			if _, twice := rooms[name[1]]; twice {
				return nil, fmt.Errorf("%s has two rows", name[1])
			}
			rooms[name[1]] = room{floor: floor, pure: strings.Contains(cells[2], "*pure*")}
		}
	}
	return rooms, nil
}

// objection says why a file of a room may not import a path; "" if it may.
func objection(rooms map[string]room, from, path string, inTest bool) string {
	r := rooms[from]
	for known, by := range knownOnlyBy {
		if within(path, known) && !within("berth/"+from, known) && !slices.ContainsFunc(by, func(above string) bool { return within(from, above) }) && !inTest {
			return "only " + strings.Join(by, ", ") + " may know it"
		}
	}
	for _, kept := range mayNotKnow[from] {
		if within(path, kept) && path != "berth/"+from {
			return "it is kept from that room"
		}
	}
	to, ours := strings.CutPrefix(path, "berth/")
	external := strings.Contains(strings.Split(path, "/")[0], ".")
	switch target, exists := rooms[to]; {
	case !inTest && external && slices.Contains(standardOnly, from):
		return "the room has the standard library only"
	case !inTest && r.pure && slices.Contains(impure, path):
		return "the room is pure"
	case !ours || to == from:
		return ""
	case !exists:
		return "there is no such room in ARCHITECTURE.md"
	case target.beside && inTest:
		return ""
	case target.beside:
		return "it is beside the house, for tests alone"
	case r.pure && !target.pure && !inTest:
		return "the room is pure, and that one is not"
	case target.floor > r.floor:
		return fmt.Sprintf("it runs upwards, from floor %v to %v", r.floor, target.floor)
	case target.floor == r.floor:
		return fmt.Sprintf("it runs sideways, on floor %v", r.floor)
	}
	return ""
}

// within tells whether a package is that one or below it.
func within(path, above string) bool {
	return path == above || strings.HasPrefix(path, above+"/")
}

// source is a file of ours.
type source struct {
	room, path string
	file       *ast.File
	set        *token.FileSet
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

func architecture(t *testing.T) map[string]room {
	t.Helper()
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	rooms, err := readRooms(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return rooms
}

func TestRoomsImportOnlyFloorsBelow(t *testing.T) {
	rooms := architecture(t)
	eachFile(t, func(s source) {
		if _, known := rooms[s.room]; !known {
			t.Errorf("%s: the room %s is not in ARCHITECTURE.md", s.path, s.room)
			return
		}
		for _, spec := range s.file.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			if why := objection(rooms, s.room, path, s.inTest()); why != "" {
				t.Errorf("%s may not import %s: %s", s.path, path, why)
			}
		}
	})
}

// TestTheRuleOnImports: the rule itself, on a small house.
func TestTheRuleOnImports(t *testing.T) {
	rooms, err := readRooms("| 5 | `internal/cli` | |\n| 2.5 | `internal/machine/run` | |\n| 2 | `internal/sched` *pure*, `internal/sched/fit` *pure* | |\n| | `internal/machine/gpu` | |\n| 1 | `internal/job` *pure* | |\n" +
		"Beside the house: `internal/tests/soak` and `internal/tests/fakenvml`.\n")
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
		{"internal/cli", "berth/internal/other", false, "no such room"},
		{"internal/cli", "berth/internal/machine/run", false, "may know it"},
		{"internal/cli", "berth/internal/machine/run", true, ""},
		{"internal/machine/run", "github.com/cilium/ebpf/link", false, ""},
		{"internal/machine/gpu", "github.com/cilium/ebpf/link", false, "may know it"},
		{"internal/machine/gpu", "berth/internal/job", false, "kept from"},
		{"internal/machine/gpu", "berth/internal/tests/fakenvml", false, "beside"},
		{"internal/machine/gpu", "berth/internal/tests/fakenvml", true, ""},
		{"internal/tests/soak", "berth/internal/job", true, ""},
		{"internal/tests/soak", "berth/internal/cli", true, "upwards"},
		{"internal/sched/fit", "time", false, ""},
		{"internal/sched/fit", "os", false, "pure"},
		{"internal/sched/fit", "berth/internal/machine/gpu", false, "that one is not"},
		{"internal/sched", "github.com/a/b", false, "standard library"},
	} {
		if got := objection(rooms, row.from, row.path, row.inTest); !strings.Contains(got, row.want) || (got == "") != (row.want == "") {
			t.Errorf("%s imports %s (in a test: %v): %q, want %q", row.from, row.path, row.inTest, got, row.want)
		}
	}
}

func TestPureRoomsKnowNoWorld(t *testing.T) {
	// seeds: G58
	rooms := architecture(t)
	eachFile(t, func(s source) {
		if !rooms[s.room].pure || s.inTest() {
			return
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := call.X.(*ast.Ident); ok && pkg.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "NewTimer", "NewTicker"}, call.Sel.Name) {
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
		if !within(s.room, "internal/compat") || s.inTest() {
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
		if slices.Contains([]string{"internal/job", "internal/queue/store", "internal/machine/keep"}, s.room) || s.inTest() {
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
		there[s.room] = true
		if s.file.Doc != nil && len(s.file.Doc.Text()) > 60 {
			documented[s.room] = true
		}
	})
	for room := range architecture(t) {
		if !there[room] {
			t.Errorf("ARCHITECTURE.md lists the room %s, but there is no such package", room)
		} else if !documented[room] && !strings.HasPrefix(room, "cmd/") {
			t.Errorf("%s has no package comment that says what it may not do", room)
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
