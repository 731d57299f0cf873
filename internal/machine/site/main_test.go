package site

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"berth/internal/tests/testkit"
)

// The test binary is also the processes it tests with.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 3 && os.Args[1] == HoldWord && os.Args[2] == holdPort:
		os.Exit(Hold(os.Args[2:]))
	case slices.Contains(os.Args, "__hold"):
		at := slices.Index(os.Args, "__hold")
		held := here()
		if len(os.Args) > at+1 {
			held.root = os.Args[at+1]
		}
		os.Exit(holdScope(held, os.Stdout))
	case os.Getenv("SITE_TEST_HELPER") == "port":
		helperPort()
	case os.Getenv("SITE_TEST_HELPER") == "service":
		helperService()
	default:
		// The process that held a port may take a moment to end.
		goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("berth/internal/machine/site.awaitHolder"))
	}
}

// fake is another machine: files below a directory, and programs that answer
// as they are told.
type fake struct {
	machine
	t *testing.T

	mu       sync.Mutex
	programs map[string]func(call) (answer, error)
	calls    []string
}

func newFake(t *testing.T) *fake {
	t.Helper()
	// Sockets lie in here, whose addresses are short.
	root, err := os.MkdirTemp("", "site")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	f := &fake{t: t, programs: make(map[string]func(call) (answer, error))}
	f.machine = machine{root: root, run: f.ask, uid: 1000, pid: 4711}
	return f
}

func (f *fake) ask(_ context.Context, c call) (answer, error) {
	f.mu.Lock()
	line := strings.Join(append([]string{c.name}, c.args...), " ")
	f.calls = append(f.calls, line)
	program := f.programs[line]
	if program == nil {
		program = f.programs[c.name]
	}
	f.mu.Unlock()
	if program == nil {
		return answer{}, fmt.Errorf("%s: %w", c.name, errNotInstalled)
	}
	return program(c)
}

// file writes a file of the fake machine.
func (f *fake) file(name, text string) *fake {
	f.t.Helper()
	testkit.Write(f.t, f.path(name), text)
	return f
}

// says makes a program, or one call of it, print something.
func (f *fake) says(line, text string) *fake {
	return f.exits(line, 0, text)
}

func (f *fake) exits(line string, status int, text string) *fake {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.programs[line] = func(call) (answer, error) { return answer{exit: status, stdout: text}, nil }
	return f
}

// breaks makes a program give no answer.
func (f *fake) breaks(line string, err error) *fake {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.programs[line] = func(call) (answer, error) { return answer{}, err }
	return f
}

func (f *fake) count(line string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, made := range f.calls {
		if made == line {
			n++
		}
	}
	return n
}

// withAnn is a machine with one user.
func withAnn(t *testing.T) *fake {
	return newFake(t).file("/etc/nsswitch.conf", "passwd: files\ngroup: files\n").
		exits("getent", getentNotFound, "").
		says("getent passwd 1000", ann).says("getent passwd ann", ann).
		says("getent initgroups ann", "ann                   27 44 1000\n").
		says("getent group berth-admin", "berth-admin:x:27:\n")
}

const ann = "ann:x:1000:1000:Ann:/home/ann:/bin/bash\n"

// allCommandsEnd waits until no program is under way any more.
func allCommandsEnd(t *testing.T) {
	t.Helper()
	deadline := time.After(testkit.Patience)
	for range maxCommands {
		select {
		case commandSlots <- struct{}{}:
		case <-deadline:
			t.Fatal("a program still runs")
		}
	}
	for range maxCommands {
		<-commandSlots
	}
}
