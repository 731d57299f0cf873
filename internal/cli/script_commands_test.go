package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"berth/internal/cli"
	"berth/internal/machine/keep"
	"berth/internal/tests/testkit"
)

// storyCommands are what stories can do beside what testscript brings.
var storyCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"exits":      exits,
	"begin":      begin,
	"ends":       ends,
	"signal":     signalActor,
	"waitfor":    waitFor,
	"inorder":    inOrder,
	"appendline": appendLine,
	"appendtext": appendText,
	"gone":       gone,
	"jsonq":      jsonQuery,
	"jobshape":   jobShape,
	"lapse":      lapse,
	"nocontrol":  noControl,
}

type castKey struct{}

// cast is what a story has begun and not seen end.
type cast struct {
	workDir string
	actors  map[string]*actor
}

// actor is a process in the background of a story.
type actor struct {
	command  *exec.Cmd
	out, err string // files
	over     chan struct{}
	terminal *os.File // what it types and shows goes through, if it sits at one
}

func castOf(ts *testscript.TestScript) *cast { return ts.Value(castKey{}).(*cast) }

func refuseNegation(ts *testscript.TestScript, neg bool) {
	if neg {
		ts.Fatalf("this command cannot be negated")
	}
}

// prepare finds the command in the story's PATH and gives it the story's
// directory and environment.
func prepare(ts *testscript.TestScript, ctx context.Context, args []string) *exec.Cmd {
	path := args[0]
	if !strings.Contains(path, "/") {
		for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
			if info, err := os.Stat(filepath.Join(dir, args[0])); err == nil && info.Mode()&0o111 != 0 && !info.IsDir() {
				path = filepath.Join(dir, args[0])
				break
			}
		}
	}
	command := exec.CommandContext(ctx, ts.MkAbs(path), args[1:]...)
	command.Dir = ts.MkAbs(".")
	command.Env = storyEnv(ts)
	return command
}

// storyEnv is the environment a story's processes get: the names below as the
// story has them, and nothing of the one who runs the tests. Anything else a
// story wants for one command it says with env(1).
func storyEnv(ts *testscript.TestScript) []string {
	var env []string
	for _, name := range []string{"WORK", "PATH", "BIN", "REPO", "HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "BERTH_LEDGER_DIR", "TMPDIR", "TZ", "BERTH_SIM_DIR", "BERTH_SOCKET", "BERTH_HOST", "BERTH_SIM", "COLUMNS"} {
		if value := ts.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// exits CODE COMMAND...: run it, and expect that exit status.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	refuseNegation(ts, neg)
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	command := prepare(ts, ctx, args[1:])
	command.WaitDelay = testkit.Patience
	command.Stdout, command.Stderr = ts.Stdout(), ts.Stderr()
	checkStatus(ts, want, command.Run())
}

func checkStatus(ts *testscript.TestScript, want int, err error) {
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d (%v)", got, want, err)
	}
}

// begin NAME COMMAND...: run it in the background; what it prints is in
// NAME.out and NAME.err while it runs.
func begin(ts *testscript.TestScript, neg bool, args []string) {
	refuseNegation(ts, neg)
	c := castOf(ts)
	name := args[0]
	if c.actors[name] != nil {
		ts.Fatalf("%s has begun already", name)
	}
	a := &actor{command: prepare(ts, context.Background(), args[1:]), over: make(chan struct{})}
	a.out, a.err = ts.MkAbs(name+".out"), ts.MkAbs(name+".err")
	stdout, err := os.Create(a.out)
	ts.Check(err)
	defer stdout.Close()
	stderr, err := os.Create(a.err)
	ts.Check(err)
	defer stderr.Close()
	a.command.Stdout, a.command.Stderr = stdout, stderr
	ts.Check(a.command.Start())
	c.actors[name] = a
	go func() {
		_ = a.command.Wait() // the status is looked at by whoever waits for it
		close(a.over)
	}()
}

// ends NAME [CODE]: wait for it to end, with that exit status if one is
// given (a signal is 128 and its number); stdout and stderr are then its.
func ends(ts *testscript.TestScript, neg bool, args []string) {
	refuseNegation(ts, neg)
	c := castOf(ts)
	a := c.actors[args[0]]
	if a == nil {
		ts.Fatalf("%s has not begun", args[0])
	}
	select {
	case <-a.over:
	case <-time.After(testkit.Patience):
		ts.Fatalf("%s goes on after %s; it said:\n%s%s", args[0], testkit.Patience, ts.ReadFile(a.out), ts.ReadFile(a.err))
	}
	delete(c.actors, args[0])
	fmt.Fprint(ts.Stdout(), ts.ReadFile(a.out))
	fmt.Fprint(ts.Stderr(), ts.ReadFile(a.err))
	if len(args) < 2 {
		return
	}
	status := a.command.ProcessState.Sys().(syscall.WaitStatus)
	code := status.ExitStatus()
	if status.Signaled() {
		code = 128 + int(status.Signal())
	}
	if strconv.Itoa(code) != args[1] {
		ts.Fatalf("%s ended with %d, want %s; it said:\n%s%s", args[0], code, args[1], ts.ReadFile(a.out), ts.ReadFile(a.err))
	}
}

// signal NAME INT|TERM|KILL|HUP; BOTH kills a berth run and the process of its queue.
func signalActor(ts *testscript.TestScript, neg bool, args []string) {
	refuseNegation(ts, neg)
	signals := map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL, "HUP": syscall.SIGHUP, "BOTH": syscall.SIGKILL}
	a := castOf(ts).actors[args[0]]
	if a == nil {
		ts.Fatalf("%s has not begun", args[0])
	}
	var queues []int
	if args[1] == "BOTH" {
		queues = queuesOf(ts, a.command.Process.Pid)
	}
	ts.Check(a.command.Process.Signal(signals[args[1]]))
	for _, pid := range queues {
		ts.Check(syscall.Kill(pid, syscall.SIGKILL))
	}
}

// waitfor FILE [REGEXP [COUNT]]: wait until a file of that name or pattern is
// there and matches, that many times if a count is given.
func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	refuseNegation(ts, neg)
	expression, count := "", 1
	if len(args) > 1 {
		expression = args[1]
	}
	if len(args) > 2 {
		n, err := strconv.Atoi(args[2])
		ts.Check(err)
		count = n
	}
	wanted, err := regexp.Compile("(?m)" + expression)
	ts.Check(err)
	last := ""
	ok := testkit.Holds(testkit.Patience, func() bool {
		files, _ := filepath.Glob(ts.MkAbs(args[0]))
		for _, file := range files {
			text, err := os.ReadFile(file)
			last = string(text)
			if err == nil && len(wanted.FindAllIndex(text, count)) >= count {
				return true
			}
		}
		return false
	})
	if !ok {
		ts.Fatalf("%s does not come to match %q; it has:\n%s", args[0], expression, last)
	}
}

// inorder FILE REGEXP...: each is found after the one before it.
func inOrder(ts *testscript.TestScript, neg bool, args []string) {
	refuseNegation(ts, neg)
	rest := ts.ReadFile(args[0])
	for _, expression := range args[1:] {
		at := regexp.MustCompile("(?m)" + expression).FindStringIndex(rest)
		if at == nil {
			ts.Fatalf("%q is not found where it belongs; what is left of %s:\n%s", expression, args[0], rest)
		}
		rest = rest[at[1]:]
	}
}

// appendline FILE TEXT: add a line as an editor or `echo >>` would.
func appendLine(ts *testscript.TestScript, neg bool, args []string) {
	appendText(ts, neg, []string{args[0], strings.Join(args[1:], " ") + "\n"})
}

// appendtext FILE TEXT: the same without the newline.
func appendText(ts *testscript.TestScript, neg bool, args []string) {
	refuseNegation(ts, neg)
	file, err := os.OpenFile(ts.MkAbs(args[0]), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	ts.Check(err)
	_, err = file.WriteString(strings.Join(args[1:], " "))
	ts.Check(errors.Join(err, file.Close()))
}

// gone FILE...: each file holds process ids, and none of them lives. With !,
// all of them do.
func gone(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args {
		for _, word := range strings.Fields(ts.ReadFile(name)) {
			pid, err := strconv.Atoi(word)
			ts.Check(err)
			if alive(pid) != neg {
				ts.Fatalf("%s: process %d lives: %v", name, pid, !neg)
			}
		}
	}
}

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func processes() []int {
	entries, _ := os.ReadDir("/proc")
	var pids []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// nocontrol FILE...: nothing in them could drive a terminal.
func noControl(ts *testscript.TestScript, neg bool, args []string) {
	refuseNegation(ts, neg)
	for _, name := range args {
		for _, r := range ts.ReadFile(name) {
			if r != '\n' && (r < ' ' || (r >= 0x7f && r < 0xa0) || r == 0x202e) {
				ts.Fatalf("%s holds the control character %U", name, r)
			}
		}
	}
}

// queuesOf are the processes of own queues that a process has started.
func queuesOf(ts *testscript.TestScript, parent int) (pids []int) {
	table, err := keep.Processes()
	ts.Check(err)
	for _, p := range table {
		words, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID)) // empty if it is gone
		if p.Parent == parent && bytes.Contains(words, []byte(cli.HostWord)) {
			pids = append(pids, p.PID)
		}
	}
	return pids
}
