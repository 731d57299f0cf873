// Command bench measures berth in units of the bare operations it is built on, in
// one run on one machine: a bare Go program, fork and exec, fsync, xargs -P2.
// Seconds differ between machines, these ratios much less. With -write they go into
// a file that is committed; with -check a row that is more than a fifth worse than
// in that file fails. It is not part of the tests: it needs a quiet machine.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// measurements are in the order in which they run. The guarded ones have rows in
// the committed file, and take about three minutes.
var measurements = []struct {
	name    string
	guarded bool
	measure func(*bench)
}{
	{"verbs", true, (*bench).verbs},
	{"start", true, (*bench).start},
	{"submits", true, (*bench).submits},
	{"bulk", true, (*bench).bulk},
	{"drain", true, (*bench).drain},
	{"mixed", true, (*bench).mixed},
	{"growth", true, (*bench).growth},
	{"memory", true, (*bench).memory},
	{"supervisor", true, (*bench).supervisor},
	{"decide", true, (*bench).decide},
	{"long", true, (*bench).long},
	{"peers", false, (*bench).peers},
	{"large", false, (*bench).large},
	{"idle", false, (*bench).idle},
	{"snapshot", false, (*bench).snapshot},
	{"samples", false, (*bench).samples},
	{"why", false, (*bench).why},
	{"scrape", false, (*bench).scrape},
	{"million", false, (*bench).million},
	{"sustained", false, (*bench).sustained},
	{"top", false, (*bench).top},
}

// slurm hands jobs to the Slurm that SLURM_CONF names, which must be one for tests,
// so it runs only if asked for.
const slurmName = "slurm"

func main() {
	berth := flag.String("berth", "bin/berth", "the program to measure")
	only := flag.String("only", "", "measure only these, separated by commas; slurm needs SLURM_CONF")
	write := flag.String("write", "", "write the guarded rows to a `file`")
	against := flag.String("check", "", "measure the guarded rows, and compare them with a `file`")
	flag.Parse()
	if *write != "" && (*only != "" || *against != "") {
		fail("-write needs all measurements")
	}
	b := bench{berth: absolute(*berth), was: map[string]row{}}
	if *against != "" {
		b.was = read(*against)
	}
	root := absolute(".")
	dir, err := os.MkdirTemp(".", ".bench-")
	check(err)
	check(os.Chdir(dir))
	fmt.Printf("%-72s %14s %14s\n", "what", "measured", "goal")
	for _, m := range measurements {
		if *only == "" && (m.guarded || *against == "") || slices.Contains(strings.Split(*only, ","), m.name) {
			b.inDirectory(m.name, m.measure)
		}
	}
	if *only == slurmName {
		b.slurm()
	}
	check(os.Chdir(root))
	check(os.RemoveAll(dir))
	if *write != "" {
		b.write(*write)
	}
	if b.missed > 0 {
		fmt.Printf("%d rows MISSED\n", b.missed)
		os.Exit(1)
	}
}

type bench struct {
	berth  string
	hello  string         // a bare Go program
	rows   []row          // guarded
	was    map[string]row // the committed ones; empty: goals count
	missed int
}

// row is a guarded result. Its unit is part of what it says.
type row struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
	More  bool    `json:"more_is_better,omitempty"`
}

// study is the committed file.
type study struct {
	Date   string `json:"date"`
	Commit string `json:"commit"`
	CPUs   int    `json:"cpus"`
	Rows   []row  `json:"rows"`
}

// tolerated is how much worse than the committed row a row may be.
const tolerated = 1.2

// inDirectory measures in a directory of its own. If a row is worse than it was,
// the measurement is made twice more, and the best counts: other work on the
// machine comes and goes.
func (b *bench) inDirectory(name string, measure func(*bench)) {
	before, missed := len(b.rows), b.missed
	for try := range 3 {
		b.missed = missed
		dir := fmt.Sprint(name, try)
		check(os.Mkdir(dir, 0o755))
		check(os.Chdir(dir))
		first := b.rows[before:]
		b.rows = slices.Clone(b.rows[:before])
		measure(b)
		check(os.Chdir(".."))
		for i, r := range first {
			if now := &b.rows[before+i]; now.worseThan(r) > 1 {
				now.Value = r.Value
			}
		}
		if len(b.was) == 0 || !slices.ContainsFunc(b.rows[before:], b.isWorse) {
			break
		}
	}
	if len(b.was) == 0 {
		return
	}
	b.missed = missed
	for _, r := range b.rows[before:] {
		old, known := b.was[r.What]
		switch by := r.worseThan(old); {
		case !known:
			fmt.Printf("%-72s is new\n", r.What)
		case by > tolerated:
			b.missed++
			fmt.Printf("%-72s WORSE: %.3g, was %.3g\n", r.What, r.Value, old.Value)
		case by < 1/tolerated:
			fmt.Printf("%-72s better: %.3g, was %.3g\n", r.What, r.Value, old.Value)
		}
	}
}

// worseThan is 1 if both are equal, and 2 if this is half as good.
func (r row) worseThan(old row) float64 {
	if r.More {
		return old.Value / r.Value
	}
	return r.Value / old.Value
}

func (b *bench) isWorse(r row) bool {
	old, known := b.was[r.What]
	return known && r.worseThan(old) > tolerated
}

func read(path string) map[string]row {
	text, err := os.ReadFile(path)
	if err != nil {
		fail(err.Error() + " (make bench writes it)")
	}
	var s study
	check(json.Unmarshal(text, &s))
	fmt.Printf("against %s of %s, %d CPUs\n", s.Commit, s.Date, s.CPUs)
	was := map[string]row{}
	for _, r := range s.Rows {
		was[r.What] = r
	}
	return was
}

func (b *bench) write(path string) {
	commit, err := exec.Command("git", "rev-parse", "--short=8", "HEAD").Output()
	check(err)
	text, err := json.MarshalIndent(study{time.Now().UTC().Format(time.DateOnly), strings.TrimSpace(string(commit)), runtime.NumCPU(), b.rows}, "", "\t")
	check(err)
	check(os.WriteFile(path, append(text, '\n'), 0o644))
}

// row prints a result that no file guards.
func (b *bench) row(what, measured, goal string, ok bool) {
	mark := ""
	if !ok {
		mark = "  MISSED"
		b.missed++
	}
	fmt.Printf("%-72s %14s %14s%s\n", what, measured, goal, mark)
}

// plain is less without a guard.
func (b *bench) plain(what, note string, value, goal float64) {
	b.row(what+" "+note, fmt.Sprintf("%.2f", value), fmt.Sprintf("<= %.4g", goal), value <= goal)
}

// less is a guarded row that should be at most goal; note says it in plain units.
func (b *bench) less(what, note string, value, goal float64) {
	b.rows = append(b.rows, row{What: what, Value: value})
	b.row(what+" "+note, fmt.Sprintf("%.2f", value), fmt.Sprintf("<= %.4g", goal), value <= goal)
}

// more is a guarded row that should be at least goal.
func (b *bench) more(what, note string, value, goal float64) {
	b.rows = append(b.rows, row{What: what, Value: value, More: true})
	b.row(what+" "+note, fmt.Sprintf("%.2f", value), fmt.Sprintf(">= %.4g", goal), value >= goal)
}

// against measures two operations in turns, so that other load affects both alike,
// and adds the row of their ratio. The faster quarter of each counts. Ours does the
// work of per operations.
func (b *bench) against(what string, rounds int, bare, ours func() time.Duration, per, goal float64) {
	var theirs, own []time.Duration
	for range rounds {
		theirs, own = append(theirs, bare()), append(own, ours())
	}
	took := quarter(own).Seconds() / per
	b.less(what, fmt.Sprintf("(%.2f ms)", 1000*took), took/quarter(theirs).Seconds(), goal)
}

func quarter(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/4]
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

func took(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// bareGo runs a Go program that prints a word.
func (b *bench) bareGo() time.Duration {
	if b.hello == "" {
		b.hello = absolute("../hello")
		check(os.WriteFile("hello.go", []byte("package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(\"hello\") }\n"), 0o644))
		build := exec.Command("go", "build", "-o", b.hello, "hello.go")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		build.Stderr = os.Stderr
		check(build.Run())
	}
	return took(func() { check(exec.Command(b.hello).Run()) })
}

func (b *bench) command(args ...string) *exec.Cmd {
	cmd := exec.Command(b.berth, args...)
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), "BERTH_LEDGER_DIR="+absolute("ledger"))
	return cmd
}

func absolute(path string) string {
	path, err := filepath.Abs(path)
	check(err)
	return path
}

func check(err error) {
	if err != nil {
		fail(err.Error())
	}
}

func fail(text string) {
	fmt.Fprintln(os.Stderr, "bench:", text)
	os.Exit(2)
}
