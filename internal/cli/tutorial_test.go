package cli_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"

	"berth/internal/tests/testkit"
)

// TestTheTutorialIsTrue types every command of the tutorial into a shell on a
// terminal of 80 columns, and compares the answers with the page. With -update
// it writes them into the page.
func TestTheTutorialIsTrue(t *testing.T) { pageIsTrue(t, "../../docs/tutorial.md", ":") }

// TestThePageOfCommandsIsTrue does the same with the examples of the verbs.
func TestThePageOfCommandsIsTrue(t *testing.T) {
	pageIsTrue(t, "../../docs/reference/commands.md", "export BERTH_SIM=2; mkdir project; cd project")
}

func pageIsTrue(t *testing.T, path, setup string) {
	t.Helper()
	if _, err := os.Stat("/run/berth/berth.sock"); err == nil {
		t.Skip("a daemon for the whole machine runs here")
	}
	page := testkit.Read(t, path)
	shell := newShell(t)
	shell.enter(setup)
	steps := 0
	updated := eachStep(page, func(step step) string {
		steps++
		if *testkit.Update {
			if answer := shell.settled(step); !step.agrees(answer) {
				return answer
			}
			return step.answer
		}
		var answer string
		testkit.Holds(testkit.Patience, func() bool {
			answer = shell.enter(step.command)
			return step.agrees(answer) || !step.onlyLooks()
		})
		if !step.agrees(answer) {
			t.Fatalf("%s\nanswers otherwise than the page says (-update if that is meant):\n%s", step.command, cmp.Diff(step.comparable(step.answer), step.comparable(answer)))
		}
		return answer
	})
	if steps < 15 {
		t.Errorf("only %d commands", steps)
	}
	if *testkit.Update {
		testkit.Write(t, path, updated)
	}
}

// step is a command of the page, and what the page says it prints.
type step struct{ command, answer string }

// eachStep visits the commands of the page's console blocks in order, and
// returns the page with the answers that the visits gave.
func eachStep(page string, visit func(step) string) string {
	var out strings.Builder
	parts := strings.Split(page, "```console\n")
	out.WriteString(parts[0])
	for _, part := range parts[1:] {
		block, after, _ := strings.Cut(part, "```\n")
		out.WriteString("```console\n")
		for typed := range strings.SplitSeq(strings.TrimPrefix(block, "$ "), "\n$ ") {
			var s step
			s.command, s.answer, _ = strings.Cut(strings.TrimSuffix(typed, "\n")+"\n", "\n")
			if strings.Contains(s.command, "<<'END'") { // the file belongs to the command
				file, answer, _ := strings.Cut(s.answer, "END\n")
				s.command, s.answer = s.command+"\n"+file+"END", answer
			}
			out.WriteString("$ " + s.command + "\n" + visit(s))
		}
		out.WriteString("```\n" + after)
	}
	return out.String()
}

// onlyLooks is true for commands that change nothing. They are typed again
// until the daemon has measured what the page shows.
func (s step) onlyLooks() bool {
	return regexp.MustCompile(`^berth (list|gpus|why|history|logs|show|stats) ?`).MatchString(s.command)
}

func (s step) agrees(answer string) bool {
	return slices.EqualFunc(s.comparable(s.answer), s.comparable(answer), func(want, got string) bool {
		// A table is cut where the terminal ends, which depends on the user's name.
		const slack = 12
		wantKept, _, wantCut := strings.Cut(want, "…")
		gotKept, _, gotCut := strings.Cut(got, "…")
		if n := min(len(wantKept), len(gotKept)) - slack; (wantCut || gotCut) && n > 0 {
			return wantKept[:n] == gotKept[:n]
		}
		return want == got
	})
}

var differs = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d`), "DATE"},
	{regexp.MustCompile(`\d\d:\d\d(:\d\d)?`), "TIME"},
	{regexp.MustCompile(`DATE TIME`), "TIME"}, // of another day, if the test runs late
	{regexp.MustCompile(`\bpid \d+`), "pid N"},
	{regexp.MustCompile(`\b(\d+h)?(\d+m)?\d+(\.\d+)?s\b`), "DURATION"},
	{regexp.MustCompile(`\d+ ?%`), "N%"},
	{regexp.MustCompile(`\d+\.\d\d\d\b`), "HOURS"},
	{regexp.MustCompile(`\d+\.\d [KM]iB`), "SIZE"},
	{regexp.MustCompile(` +`), " "},
}

// comparable is an answer without what differs from one time to the next. Where
// several jobs end, they may end in any order.
func (s step) comparable(answer string) []string {
	for _, d := range differs {
		answer = d.pattern.ReplaceAllString(answer, d.instead)
	}
	if regexp.MustCompile(`^berth (stats|gpus -v)`).MatchString(s.command) { // sums, and process ids
		answer = regexp.MustCompile(`\d+(\.\d+)?`).ReplaceAllString(answer, "N")
	}
	lines := strings.Split(answer, "\n")
	if strings.HasPrefix(s.command, "berth run") || strings.HasPrefix(s.command, "berth wait") {
		slices.Sort(lines)
	}
	return lines
}

// shell types commands into bash, whose terminal is 80 columns wide, in a home
// directory of its own.
type shell struct {
	t     *testing.T
	home  string
	input io.Writer
	lines chan string // what the terminal shows
	n     int
}

func newShell(t *testing.T) *shell {
	t.Helper()
	home, err := os.MkdirTemp("", "h") // short: a socket's path has a limit
	testkit.Must(t, err)
	screen, tty, err := pty.Open()
	testkit.Must(t, err, pty.Setsize(screen, &pty.Winsize{Rows: 30, Cols: 80}))
	bash := exec.Command("bash")
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "BERTH_") && !strings.HasPrefix(variable, "XDG_") {
			bash.Env = append(bash.Env, variable)
		}
	}
	bash.Dir, bash.Stdout, bash.Stderr = home, tty, tty
	bash.Env = append(bash.Env, "HOME="+home, "PATH="+binaries+":"+os.Getenv("PATH"), "NO_COLOR=1")
	input, err := bash.StdinPipe()
	testkit.Must(t, err, bash.Start())
	s := &shell{t: t, home: home, input: input, lines: make(chan string, 1000)}
	go func() {
		defer close(s.lines)
		for scanner := bufio.NewScanner(screen); scanner.Scan(); {
			s.lines <- strings.TrimRight(scanner.Text(), "\r")
		}
	}()
	t.Cleanup(func() {
		s.enter("berth cancel all --grace 0; berth wait -q all")
		s.stopDaemon()
		_ = input.Close()
		_ = bash.Wait()
		tty.Close()
		screen.Close()
		os.RemoveAll(home)
	})
	return s
}

// stopDaemon ends the private daemon that the first submit started.
func (d *shell) stopDaemon() {
	said := d.enter(`berth doctor --json | grep -o 'berth [^"]*(pid [0-9]*)' | grep -o '[0-9]*)' | tr -d ')'`)
	if pid, err := strconv.Atoi(strings.TrimSpace(said)); err == nil {
		_ = syscall.Kill(pid, syscall.SIGTERM)
		testkit.Holds(testkit.Patience, func() bool { return syscall.Kill(pid, 0) != nil })
	}
}

// enter types a command and returns what it prints, as ann at home would see it.
func (d *shell) enter(command string) string {
	d.t.Helper()
	d.n++
	term := "xterm"
	if strings.HasPrefix(command, "berth run") {
		term = "dumb" // without the live view
	}
	end := fmt.Sprintf("=%d=", d.n)
	_, err := fmt.Fprintf(d.input, "export TERM=%s; (exit $status); { %s\n} </dev/null\nstatus=$?; echo %s\n", term, command, end)
	testkit.Must(d.t, err)
	var answer strings.Builder
	late := time.After(2 * testkit.Patience)
	for {
		select {
		case line, open := <-d.lines:
			switch {
			case line == end:
				return d.asAnn(answer.String())
			case !open:
				d.t.Fatalf("%s: the shell ended after %q", command, answer.String())
			}
			answer.WriteString(line + "\n")
		case <-late:
			d.t.Fatalf("%s: no end, only %q", command, answer.String())
		}
	}
}

// settled repeats a command that changes nothing until the answer has been the
// same for some time, for the page.
func (d *shell) settled(s step) string {
	answer, same := d.enter(s.command), 0
	testkit.Holds(testkit.Patience, func() bool {
		again := answer
		if s.onlyLooks() {
			again = d.enter(s.command)
		}
		if same++; fmt.Sprint(s.comparable(again)) != fmt.Sprint(s.comparable(answer)) {
			same = 0
		}
		answer = again
		return same > 15
	})
	return answer
}

func (d *shell) asAnn(s string) string {
	me, err := user.Current()
	testkit.Must(d.t, err)
	s = strings.ReplaceAll(s, binaries, "/home/ann/bin")
	s = strings.ReplaceAll(s, d.home, "/home/ann")
	s = regexp.MustCompile(`\b`+regexp.QuoteMeta(me.Username)+`\b( +)?`).ReplaceAllStringFunc(s, func(name string) string {
		word := strings.TrimRight(name, " ")
		blanks := len(name) - len(word)
		if blanks > 1 { // a column
			blanks += len(word) - len("ann")
		}
		return "ann" + strings.Repeat(" ", max(blanks, 0))
	})
	return s
}

func TestStepsOfThePage(t *testing.T) {
	page := "text\n```console\n$ one\n$ cat <<'END'\nx\nEND\n$ two\nanswer\n```\nmore\n```sh\n$ not\n```\n"
	var seen []step
	same := eachStep(page, func(s step) string { seen = append(seen, s); return s.answer })
	if diff := cmp.Diff(page, same); diff != "" {
		t.Error(diff)
	}
	want := []step{{"one", ""}, {"cat <<'END'\nx\nEND", ""}, {"two", "answer\n"}}
	if diff := cmp.Diff(want, seen, cmp.AllowUnexported(step{})); diff != "" {
		t.Error(diff)
	}
}
