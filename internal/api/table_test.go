package api

import (
	"regexp"
	"strings"
	"testing"

	"berth/internal/tests/testkit"
)

// formOf matches what a path of the table stands for.
func formOf(op *Operation) *regexp.Regexp {
	path := strings.ReplaceAll(op.Path, "{$}", "")
	return regexp.MustCompile("^" + regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(regexp.QuoteMeta(path), `[^/ ]+`) + "$")
}

// TestTheTableSaysWhoMayCall holds Need to what a daemon answered each kind of caller.
func TestTheTableSaysWhoMayCall(t *testing.T) {
	_, rows, _ := strings.Cut(testkit.Read(t, "../queue/daemon/testdata/rights.txt"), "\n")
	said := map[*Operation]Right{}
	var last *Operation
	statuses := regexp.MustCompile(`^(\w+) +(/\S*) +(\d+) \d+ \d+ (\d+) (\d+) (\d+) \d+$`)
	for line := range strings.Lines(rows) {
		line = strings.TrimRight(line, "\n")
		row := statuses.FindStringSubmatch(line)
		if row == nil {
			if strings.Contains(line, "only an administrator") && said[last] == -1 {
				said[last] = Administrator
			}
			continue
		}
		path, _, _ := strings.Cut(row[2], "?")
		for _, e := range endpoints() {
			if last = e.op(); last.Method == row[1] && formOf(last).MatchString(path) {
				break
			}
		}
		switch {
		case row[3] != "401":
			said[last] = Anyone
		case row[4] == "403" && row[5] == "403" && row[6] != "403":
			said[last] = -1 // perhaps; the problem tells
		default:
			said[last] = Identified
		}
	}
	for _, e := range endpoints() {
		op := e.op()
		right, known := said[op]
		if !known {
			t.Errorf("%s %s is not in the table of rights", op.Method, op.Path)
		}
		if right == -1 {
			right = Identified // what was named belongs to somebody else
		}
		if right != op.Need {
			t.Errorf("%s %s needs the right %d, and a daemon asked for %d", op.Method, op.Path, op.Need, right)
		}
	}
}

// TestPythonCallsWhatThereIs: each request of the Python client is in the table.
func TestPythonCallsWhatThereIs(t *testing.T) {
	calls := regexp.MustCompile(`"(GET|POST|PATCH|DELETE)", f?"(/[^"]*)"`).FindAllStringSubmatch(testkit.Read(t, "../../python/berth/client.py"), -1)
	if len(calls) < 10 {
		t.Fatalf("only %d requests were found", len(calls))
	}
	for _, call := range calls {
		path := regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(call[2], "x")
		found := false
		for _, e := range endpoints() {
			found = found || e.op().Method == call[1] && formOf(e.op()).MatchString(path)
		}
		if !found {
			t.Errorf("there is no %s %s", call[1], call[2])
		}
	}
}
