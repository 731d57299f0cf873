// Command runtests runs go test, for several groups of packages at once, each with
// its own flags and environment. When all have ended, and nothing else runs, a test that failed is
// run again alone, up to twice. One that passes then is reported as flaky, on a line
// of its own. A test that keeps failing, a panic, a data race, a package that does
// not build, or more than mayFlake flaky tests fail the run. The tests that took
// longest are listed at the end.
//
//	go run ./scripts/runtests CGO_ENABLED=1 -race ./internal/sched -- -run TestStories ./internal/cli
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// mayFlake is how many flaky tests a run may have. A busy machine alone must not
// refuse a good change: there, flaky tests are only reported.
const mayFlake = 2

// event is one line of go test -json.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
	ImportPath                    string  // of output of a build
}

// result is the outcome of a run of tests.
type result struct {
	output map[string][]string // by package and test, separated by a space
	failed []string            // tests whose subtests did not fail, as package and name
	broken []string            // packages that failed without a failed test
	grave  []string            // lines that fail the run, whatever a second run says
	begun  map[string]bool     // tests that have not ended yet
	passed map[string]bool
	took   map[string]float64 // whole tests, in seconds
}

func main() {
	if !passes(os.Args[1:], &lockedWriter{to: os.Stdout}, machineIsBusy) {
		os.Exit(1)
	}
}

// passes runs all groups, and the tests that failed again, and prints the outcome.
func passes(args []string, out io.Writer, isBusy func() bool) bool {
	busy := isBusy()
	groups := split(args)
	results := make([]*result, len(groups))
	var running sync.WaitGroup
	for i, group := range groups {
		running.Go(func() { results[i], _ = run(group, out) })
	}
	running.Wait()
	busy = isBusy() || busy
	tellSlowest(results, out)

	ok := true
	for _, r := range results {
		ok = r.tell(out) && ok
	}
	flaky := map[string]bool{} // a test with several flaky subtests counts once
	for i, r := range results {
		for _, test := range r.failed {
			pkg, name, _ := strings.Cut(test, " ")
			whole, _, _ := strings.Cut(name, "/")
			if passesAlone(groups[i], test, out) {
				flaky[pkg+" "+whole] = true
			} else {
				ok = false
			}
		}
	}
	if len(flaky) > 0 {
		fmt.Fprintf(out, "\nflaky tests: %d, at most %d may be on a machine that does nothing else (this one is busy: %t)\n", len(flaky), mayFlake, busy)
	}
	return ok && (len(flaky) <= mayFlake || busy)
}

// split gives each group of packages its arguments. Groups are separated by "--".
func split(args []string) [][]string {
	groups := [][]string{nil}
	for _, arg := range args {
		if arg == "--" {
			groups = append(groups, nil)
			continue
		}
		last := len(groups) - 1
		groups[last] = append(groups[last], arg)
	}
	return groups
}

// tell prints what failed, and reports whether the run may still pass.
func (r *result) tell(out io.Writer) bool {
	for _, pkg := range r.broken {
		fmt.Fprintf(out, "\n== %s failed\n%s", pkg, strings.Join(r.output[pkg+" "], ""))
	}
	for _, test := range r.failed {
		fmt.Fprintf(out, "\n== failed: %s\n%s", test, strings.Join(r.output[test], ""))
	}
	for _, line := range r.grave {
		fmt.Fprintf(out, "\n== not repeated: %s", line)
	}
	return len(r.broken)+len(r.grave) == 0
}

// tellSlowest prints the tests that took longest, of all groups together.
func tellSlowest(results []*result, out io.Writer) {
	took := map[string]float64{}
	for _, r := range results {
		maps.Copy(took, r.took)
	}
	slowest := slices.SortedFunc(maps.Keys(took), func(a, b string) int { return cmp.Compare(took[b], took[a]) })
	fmt.Fprintln(out, "\nthe slowest tests, in seconds:")
	for _, test := range slowest[:min(15, len(slowest))] {
		fmt.Fprintf(out, "%7.1f  %s\n", took[test], test)
	}
}

// passesAlone runs a test again, and prints the outcome: first the subtest that
// failed, then the whole test, because some subtests need those before them.
func passesAlone(args []string, test string, out io.Writer) bool {
	pkg, name, _ := strings.Cut(test, " ")
	whole, _, _ := strings.Cut(name, "/")
	flags := slices.DeleteFunc(slices.Clone(args), isPackage)
	for try, name := range []string{name, whole} {
		again, err := run(append(slices.Clone(flags), "-run", only(name), pkg), io.Discard)
		switch {
		case err == nil && again.passed[test]:
			fmt.Fprintf(out, "flaky: %s passed when run again alone (try %d)\n", test, try+1)
			return true
		case len(again.grave) > 0:
			fmt.Fprintf(out, "failed again: %s: %s", test, again.grave[0])
			return false
		}
	}
	fmt.Fprintf(out, "failed again, alone, twice: %s\n", test)
	return false
}

// only is the pattern that selects a test or subtest and no other.
func only(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

func isPackage(arg string) bool {
	return strings.HasPrefix(arg, ".") || arg == "berth" || strings.HasPrefix(arg, "berth/")
}

// setting is a variable of the environment of a group, as env(1) takes them.
var setting = regexp.MustCompile(`^[A-Z_]+=`)

// machineIsBusy reports whether other programs use more than a quarter of the CPU
// time. It is called when no test runs.
func machineIsBusy() bool {
	idle, total := cpuTime()
	time.Sleep(time.Second)
	idleNow, totalNow := cpuTime()
	return idleNow-idle < (totalNow-total)*3/4
}

// cpuTime is how long the CPUs of this machine were idle, and how long in all.
func cpuTime() (idle, total int) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0 // not busy
	}
	var user, nice, system, ioWait, irq, softIRQ, steal int
	_, _ = fmt.Sscanf(string(text), "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &ioWait, &irq, &softIRQ, &steal)
	idle += ioWait
	return idle, idle + user + nice + system + irq + softIRQ + steal
}

// lockedWriter lets groups print lines at the same time.
type lockedWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (w *lockedWriter) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(text)
}

// run runs go test and writes a line for each package, and why tests were skipped.
func run(args []string, out io.Writer) (*result, error) {
	r := newResult()
	cmd := exec.Command("go", "test", "-json", "-count=1")
	cmd.Env, cmd.Stderr = os.Environ(), os.Stderr
	var flags []string // after the packages: go test takes a flag it does not know for the end of its own
	for _, arg := range args {
		switch {
		case setting.MatchString(arg):
			cmd.Env = append(cmd.Env, arg)
		case isPackage(arg):
			cmd.Args = append(cmd.Args, arg)
		default:
			flags = append(flags, arg)
		}
	}
	cmd.Args = append(cmd.Args, flags...)
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		r.broken = []string{"go test: " + err.Error()}
		return r, err
	}
	lines := bufio.NewReader(pipe)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) != nil {
				e = event{Action: "output", Output: line}
			}
			r.take(e, out)
		}
		if err != nil {
			break
		}
	}
	err = cmd.Wait()
	if err != nil && len(r.failed)+len(r.broken)+len(r.grave) == 0 {
		r.broken = append(r.broken, "go test")
	}
	return r, err
}
func newResult() *result {
	return &result{output: map[string][]string{}, begun: map[string]bool{}, passed: map[string]bool{}, took: map[string]float64{}}
}

// grave are lines that mean more than a failed test, mostly the end of the
// program before all its tests ran.
var grave = regexp.MustCompile(`^(panic: |fatal error: |WARNING: DATA RACE|signal: |exit status ([02-9]|1\d))`)

func (r *result) take(e event, out io.Writer) {
	pkg := e.Package
	if pkg == "" {
		pkg, _, _ = strings.Cut(e.ImportPath, " ")
	}
	key := pkg + " " + e.Test
	if e.Elapsed > 0 && e.Test != "" && !strings.Contains(e.Test, "/") {
		r.took[key] = e.Elapsed
	}
	switch e.Action {
	case "output", "build-output":
		r.output[key] = append(r.output[key], e.Output)
		if grave.MatchString(e.Output) {
			r.grave = append(r.grave, key+": "+e.Output)
		}
		if e.Test == "" && (strings.HasPrefix(e.Output, "ok ") || strings.HasPrefix(e.Output, "?")) {
			fmt.Fprint(out, e.Output)
		}
	case "run":
		r.begun[key] = true
	case "pass":
		delete(r.output, key)
		delete(r.begun, key)
		r.passed[key] = true
	case "skip":
		delete(r.begun, key)
		if e.Test != "" {
			fmt.Fprintf(out, "skipped: %s %s", key, strings.TrimLeft(strings.Join(r.output[key], ""), " "))
		}
	case "fail", "build-fail":
		switch {
		case e.Test != "":
			delete(r.begun, key)
			if !r.anyFailed(key + "/") {
				r.failed = append(r.failed, key)
				fmt.Fprintf(out, "failed: %s\n", key)
			}
		case r.unfinished(pkg):
		case !r.anyFailed(pkg + " "):
			r.broken = append(r.broken, pkg)
		}
	}
}

// anyFailed reports whether a failed test begins so.
func (r *result) anyFailed(prefix string) bool {
	return slices.ContainsFunc(r.failed, func(test string) bool { return strings.HasPrefix(test, prefix) })
}

// unfinished reports the tests of a package that began and did not end because
// their program did.
func (r *result) unfinished(pkg string) bool {
	before := len(r.grave)
	for test := range r.begun {
		if strings.HasPrefix(test, pkg+" ") {
			r.grave = append(r.grave, test+" did not end\n"+strings.Join(r.output[test], ""))
		}
	}
	return len(r.grave) > before
}
