package berth_test

import (
	"go/ast"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestEveryVariableIsOnThePage: docs/reference/environment.md lists the
// variables that berth sets for a job or reads, and no others.
func TestEveryVariableIsOnThePage(t *testing.T) {
	page, err := os.ReadFile("docs/reference/environment.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) > 3 {
			for _, name := range regexp.MustCompile("`([A-Z][A-Z0-9_]+)`").FindAllStringSubmatch(cells[1], -1) {
				listed[name[1]] = true
			}
		}
	}
	used := map[string]string{}
	eachFile(t, func(s source) {
		if s.inTest() || within(s.pkg, "internal/compat") || s.pkg == "internal/tests/testkit" || strings.Contains(s.path, "fault_") || !within(s.pkg, "internal") && s.pkg != "cmd/berth" {
			return
		}
		collectVariables(s.file, func(name string) { used[name] = s.path })
	})
	for name := range unset {
		delete(used, name)
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if !listed[name] {
			t.Errorf("%s: %s is not in docs/reference/environment.md", used[name], name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		if used[name] == "" {
			t.Errorf("docs/reference/environment.md lists %s, which no code sets or reads", name)
		}
	}
}

// unset are variables that are only taken out of a job's environment: those of
// older versions.
var unset = map[string]bool{"BERTH_SIM_GPU": true}

var (
	variable   = regexp.MustCompile(`^([A-Z][A-Z0-9_]+)(=.*)?$`)
	ownPrefix  = regexp.MustCompile(`^(BERTH|CUDA|NVIDIA|APPTAINERENV|XLA|TF|SLURM|SLURMD)_[A-Z_]+(=.*)?$`)
	aboutLogs  = regexp.MustCompile(`_ERROR_|_STATUS_`) // what frameworks print, not variables
	envReaders = []string{"Getenv", "LookupEnv", "getenv", "lookup", "lookupEnv", "set", "suggest", "isForMe"}
)

// collectVariables visits the names of environment variables in a file: words
// with a prefix that only variables have, and arguments of what reads or sets one.
func collectVariables(file *ast.File, visit func(name string)) {
	inspect := func(n ast.Node, form *regexp.Regexp) {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			word, _ := strconv.Unquote(lit.Value)
			if form.MatchString(word) && !aboutLogs.MatchString(word) {
				name, _, _ := strings.Cut(word, "=")
				visit(name)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		inspect(n, ownPrefix)
		switch n := n.(type) {
		case *ast.CallExpr:
			name := ""
			switch fun := n.Fun.(type) {
			case *ast.Ident:
				name = fun.Name
			case *ast.SelectorExpr:
				name = fun.Sel.Name
			}
			if slices.Contains(envReaders, name) {
				for _, arg := range n.Args {
					inspect(arg, variable)
				}
			}
		case *ast.CompositeLit: // lists of names, and pairs of name and value
			if len(n.Elts) > 1 && strings.Contains(elements(n), "LISTEN_FDNAMES") || strings.HasPrefix(elements(n), "LOGNAME") || elements(n) == "HOME" || elements(n) == "USER" || elements(n) == "SHELL" {
				for _, e := range n.Elts {
					inspect(e, variable)
				}
			}
		}
		return true
	})
}

// elements are the literal words of a list.
func elements(list *ast.CompositeLit) string {
	var words []string
	for _, e := range list.Elts {
		if lit, ok := e.(*ast.BasicLit); ok {
			word, _ := strconv.Unquote(lit.Value)
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

// TestStatesOutcomesAndEventsAreOnTheirPages: every constant of these types is
// on its page, in a table's first column.
func TestStatesOutcomesAndEventsAreOnTheirPages(t *testing.T) {
	pages := map[string]string{"State": "states.md", "Outcome": "states.md", "EventKind": "json.md"}
	eachFile(t, func(s source) {
		if s.pkg != "internal/job" || s.inTest() {
			return
		}
		for _, decl := range s.file.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, spec := range group.Specs {
				value := spec.(*ast.ValueSpec)
				kind, ok := value.Type.(*ast.Ident)
				if !ok || pages[kind.Name] == "" {
					continue
				}
				word, _ := strconv.Unquote(value.Values[0].(*ast.BasicLit).Value)
				page, err := os.ReadFile("docs/reference/" + pages[kind.Name])
				if err != nil {
					t.Fatal(err)
				}
				if !regexp.MustCompile("(?m)^\\| [^|]*`" + word + "`[^|]*\\|").Match(page) {
					t.Errorf("%s: %s %s is not in docs/reference/%s", s.path, kind.Name, word, pages[kind.Name])
				}
			}
		}
	})
}

// TestEveryReasonIsOnThePage: docs/reference/json.md names what a queued job can wait
// for, and why no start is expected.
func TestEveryReasonIsOnThePage(t *testing.T) {
	page, err := os.ReadFile("docs/reference/json.md")
	if err != nil {
		t.Fatal(err)
	}
	for path, row := range map[string]string{"internal/job/reason/reason.go": "kind", "internal/job/reason/forecast.go": "no_start"} {
		code, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		listed := regexp.MustCompile("(?m)^\\| `" + row + "` \\| (.*)").FindSubmatch(page)
		names := regexp.MustCompile(`(?:Waits|None|Starts)\w+ +(?:Kind|NoForecast) = "(\w+)"`).FindAllSubmatch(code, -1)
		if listed == nil || len(names) == 0 {
			t.Fatalf("%s: %d names, and the row is %q", path, len(names), listed)
		}
		for _, name := range names {
			if string(name[1]) != "not_queued" && !strings.Contains(string(listed[1]), "`"+string(name[1])+"`") {
				t.Errorf("%s: %s is not in the row of %s", path, name[1], row)
			}
		}
	}
}
