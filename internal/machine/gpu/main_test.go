package gpu

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// scratch is what the tests built for one another; empty: nothing yet.
var scratch string

// The test binary is also the processes it tests with: real ones, that hold
// simulated memory and real locks and can be killed.
func TestMain(m *testing.M) {
	switch os.Getenv("GPU_TEST_HELPER") {
	case "":
		goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
			_ = os.RemoveAll(scratch) // the system clears what is left
			os.Exit(status)
		}))
	case "user":
		helperUser()
	case "simjob":
		helperSimJob()
	case "booker":
		helperBooker()
	case "berth-gpu":
		playHelper()
	}
}

// helper is a process that takes commands on stdin and answers each.
type helper struct {
	t       *testing.T
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers *bufio.Scanner
}

func startHelper(t *testing.T, kind string, env ...string) *helper {
	t.Helper()
	return startHelperAs(t, nil, kind, env...)
}

// startHelperAs starts it as another user. That user may not be able to reach
// the test binary by its path, but every process can reach its own program.
func startHelperAs(t *testing.T, as *syscall.Credential, kind string, env ...string) *helper {
	t.Helper()
	h := &helper{t: t, cmd: exec.Command("/proc/self/exe")}
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	h.cmd.Env = append(append(os.Environ(), "GPU_TEST_HELPER="+kind), env...)
	h.cmd.Stderr = os.Stderr
	var err error
	if h.in, err = h.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.answers = bufio.NewScanner(out)
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.kill)
	return h
}

func (h *helper) tell(format string, args ...any) {
	h.t.Helper()
	if _, err := fmt.Fprintf(h.in, format+"\n", args...); err != nil {
		h.t.Fatal(err)
	}
}

func (h *helper) answer() string {
	h.t.Helper()
	if !h.answers.Scan() {
		h.t.Fatalf("helper ended: %v", h.answers.Err())
	}
	return h.answers.Text()
}

func (h *helper) ask(format string, args ...any) string {
	h.t.Helper()
	h.tell(format, args...)
	return h.answer()
}

func (h *helper) pid() int { return h.cmd.Process.Pid }

func (h *helper) kill() {
	_ = h.cmd.Process.Kill()
	_ = h.cmd.Wait()
}

// helperUser is a process on simulated GPUs: "set CARD[,CARD] MIB [UTIL]",
// "graphics", "leave".
func helperUser() {
	p, err := joinSim(os.Getenv("BERTH_SIM_DIR"))
	if err != nil {
		fmt.Println("join:", err)
		return
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		switch words[0] {
		case "graphics":
			p.Graphics = true
			fmt.Println("ok")
		case "leave":
			fmt.Println(p.free())
		case "set":
			var cards []int
			for word := range strings.SplitSeq(words[1], ",") {
				card, _ := strconv.Atoi(word)
				cards = append(cards, card)
			}
			mib, _ := strconv.ParseInt(words[2], 10, 64)
			util := 0.0
			if len(words) > 3 {
				util, _ = strconv.ParseFloat(words[3], 64)
			}
			err := p.Set(cards, mib, util)
			var full *outOfMemoryError
			switch {
			case err == nil:
				fmt.Println("ok")
			case errors.As(err, &full):
				fmt.Println("oom", full.Card, full.AskedMiB, full.FreeMiB, full.TotalMiB)
			default:
				fmt.Println("error", err)
			}
		}
	}
}
