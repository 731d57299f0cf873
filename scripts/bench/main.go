// Command bench measures berth in units of the bare operations it is built on, in
// one run on one machine: a bare Go program, fork and exec, fsync, xargs -P2.
// Seconds differ between machines, these ratios much less. With -write they go into
// a file that is committed; with -check a row that is more than a fifth worse than
// in that file fails. It is not part of the tests: it needs a quiet machine.
//
// Each measurement is a process of its own with a time limit, so that one that
// fails or hangs is reported and does not keep the others from being measured.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// measurements are in the order in which they run. The guarded ones have rows in
// the committed file, and take about three minutes.
var measurements = []measurement{
	{"verbs", guarded, time.Minute, (*bench).verbs},
	{"start", guarded, time.Minute, (*bench).start},
	{"submits", guarded, time.Minute, (*bench).submits},
	{"bulk", guarded, time.Minute, (*bench).bulk},
	{"drain", guarded, 2 * time.Minute, (*bench).drain},
	{"mixed", guarded, time.Minute, (*bench).mixed},
	{"growth", guarded, time.Minute, (*bench).growth},
	{"memory", guarded, time.Minute, (*bench).memory},
	{"supervisor", guarded, time.Minute, (*bench).supervisor},
	{"decide", guarded, 4 * time.Minute, (*bench).decide},
	{"long", guarded, 90 * time.Second, (*bench).long},
	{"peers", usual, 30 * time.Second, (*bench).peers},
	{"large", usual, time.Minute, (*bench).large},
	{"idle", usual, 30 * time.Second, (*bench).idle},
	{"snapshot", usual, time.Minute, (*bench).snapshot},
	{"samples", usual, 30 * time.Second, (*bench).samples},
	{"why", usual, time.Minute, (*bench).why},
	{"scrape", usual, 30 * time.Second, (*bench).scrape},
	{"top", usual, time.Minute, (*bench).top},
	{"million", usual, 3 * time.Minute, (*bench).million},
	{"sustained", usual, 2 * time.Minute, (*bench).sustained},
	// It hands jobs to the Slurm that SLURM_CONF names, which must be one for tests.
	{"slurm", asked, 10 * time.Minute, (*bench).slurm},
}

type measurement struct {
	name    string
	kind    kind
	most    time.Duration
	measure func(*bench)
}

type kind int

const (
	guarded kind = iota
	usual
	asked // only if it is named
)

// whole is how long all measurements may take together.
const whole = 14 * time.Minute

func main() {
	berth := flag.String("berth", "bin/berth", "the program to measure")
	only := flag.String("only", "", "measure only these, separated by commas; slurm needs SLURM_CONF")
	write := flag.String("write", "", "write the guarded rows to a `file`")
	against := flag.String("check", "", "measure the guarded rows, and compare them with a `file`")
	here := flag.String("here", "", "measure this one in the working directory: how bench starts itself")
	flag.Parse()
	if *write != "" && (*only != "" || *against != "") {
		fail("-write needs all measurements")
	}
	names := strings.FieldsFunc(*only, func(r rune) bool { return r == ',' })
	for _, name := range append(names, *here) {
		if name != "" && !slices.ContainsFunc(measurements, func(m measurement) bool { return m.name == name }) {
			fail("there is no measurement " + name)
		}
	}
	if *here != "" {
		b := bench{berth: *berth}
		measurements[slices.IndexFunc(measurements, func(m measurement) bool { return m.name == *here })].measure(&b)
		return
	}
	var chosen []measurement
	for _, m := range measurements {
		if len(names) > 0 && slices.Contains(names, m.name) || len(names) == 0 && (m.kind == guarded || m.kind == usual && *against == "") {
			chosen = append(chosen, m)
		}
	}
	os.Exit(measure(chosen, absolute(*berth), *write, *against))
}

// measure returns the exit status.
func measure(chosen []measurement, berth, write, against string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	self, err := os.Executable()
	check(err)
	// Beside the sources, because a temporary directory may have no disk under it.
	check(os.MkdirAll(".scratch", 0o755))
	dir, err := os.MkdirTemp(absolute(".scratch"), "bench-")
	check(err)
	s := session{dir: dir, end: time.Now().Add(whole), child: func(ctx context.Context, name string) *exec.Cmd {
		return exec.CommandContext(ctx, self, "-berth", berth, "-here", name)
	}}
	defer s.close()
	if against != "" {
		s.was = read(against)
	}
	fmt.Printf("%-72s %14s %14s\n", "what", "measured", "goal")
	for _, m := range chosen {
		if ctx.Err() == nil {
			s.measured(ctx, m)
		}
	}
	switch {
	case ctx.Err() != nil:
		fmt.Println("stopped")
		return 2
	case write != "" && s.lost > 0:
		fmt.Printf("%s stays as it is: it needs every row\n", write)
	case write != "":
		save(write, s.rows)
	}
	if s.missed+s.lost > 0 {
		fmt.Printf("%d rows MISSED, %d measurements without all rows\n", s.missed, s.lost)
		return 1
	}
	return 0
}

// bench is the process of one measurement.
type bench struct {
	berth string
	hello string // a bare Go program
}

// row tells a result that no file guards.
func (b *bench) row(what, measured, goal string, ok bool) {
	b.tell(measured, goal, result{row: row{What: what}, OK: ok})
}

// plain is less without a guard.
func (b *bench) plain(what, note string, value, goal float64) {
	b.row(what+" "+note, fmt.Sprintf("%.2f", value), fmt.Sprintf("<= %.4g", goal), value <= goal)
}

// less is a guarded row that should be at most goal; note says it in plain units.
func (b *bench) less(what, note string, value, goal float64) {
	b.tell(fmt.Sprintf("%.2f", value), fmt.Sprintf("<= %.4g", goal), result{row{What: what, Value: value}, note, true, value <= goal})
}

// more is a guarded row that should be at least goal.
func (b *bench) more(what, note string, value, goal float64) {
	b.tell(fmt.Sprintf("%.2f", value), fmt.Sprintf(">= %.4g", goal), result{row{What: what, Value: value, More: true}, note, true, value >= goal})
}

// tell prints a result for a person, and writes it for the session.
func (b *bench) tell(measured, goal string, r result) {
	mark := ""
	if !r.OK {
		mark = "  MISSED"
	}
	fmt.Printf("%-72s %14s %14s%s\n", strings.TrimSpace(r.What+" "+r.Note), measured, goal, mark)
	text, err := json.Marshal(r)
	check(err)
	file, err := os.OpenFile(told, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	check(err)
	defer file.Close()
	_, err = file.Write(append(text, '\n'))
	check(err)
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
		b.hello = absolute("hello")
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
	cmd.Env = os.Environ()
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
