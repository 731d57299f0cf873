package cli_test

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"berth/internal/tests/testkit"
)

func init() {
	storyCommands["mgpu"] = startMgpu
	promises = append(promises, mgpuPromises...)
}

// mgpuPromises is the part of the index that is about the mgpu programs.
var mgpuPromises = []promise{
	{"mgpu_srun gives a job exactly the GPUs it names, its set-up, its words and its home", `
		mgpu-a-job-gets-the-gpus-it-names-in-that-order`},
	{"mgpu_srun --interactive shows all output and returns the status; Ctrl-C detaches; the default is silent", `
		mgpu-interactive-shows-everything-and-returns-the-status`},
	{"--mem and --priority decide who starts; the rest waits and starts by itself", `
		mgpu-memory-and-priority-decide-who-starts
		mgpu-free-memory-is-what-nvidia-smi-says`},
	{"what cannot be is refused at submission, and the server lives", "mgpu-bad-requests-are-refused-and-the-server-lives"},
	{"mgpu_queue lists hundreds of jobs; mgpu_cancel ends one with all its processes", "mgpu-the-queue-lists-and-cancel-ends"},
	{"at a time limit, a job's own or the server's, it goes to the end of the queue", `
		mgpu-a-time-limit-moves-a-job-to-the-end-of-the-queue`},
	{"jobs outlive the server and are found again", "mgpu-jobs-outlive-their-server"},
}

// mgpu [FLAG...]: start mgpu_scheduler_server with its state in $WORK/d, on
// four simulated cards, and wait until it serves. It is the actor "server",
// and the four programs are in PATH, as links to berth.
func startMgpu(ts *testscript.TestScript, neg bool, args []string) {
	refuseNegation(ts, neg)
	links, state := ts.MkAbs("links"), ts.MkAbs("d")
	ts.Check(os.MkdirAll(links, 0o755))
	ts.Check(os.MkdirAll(state, 0o711))
	for _, name := range []string{"mgpu_scheduler_server", "mgpu_srun", "mgpu_queue", "mgpu_cancel"} {
		if err := os.Symlink(filepath.Join(binaries, "berth"), filepath.Join(links, name)); err != nil && !os.IsExist(err) {
			ts.Fatalf("%v", err)
		}
	}
	if !strings.HasPrefix(ts.Getenv("PATH"), links) {
		ts.Setenv("PATH", links+":"+ts.Getenv("PATH"))
	}
	ts.Check(os.WriteFile(filepath.Join(state, "config.toml"), []byte("[scheduling]\npoll = 0.05\n"), 0o644))
	ts.Setenv("BERTH_SOCKET", ts.MkAbs("mgpu.sock"))
	if ts.Getenv("BERTH_SIM") == "" {
		ts.Setenv("BERTH_SIM", "4")
	}
	begin(ts, false, append([]string{"server", "mgpu_scheduler_server", "--state-dir", "d"}, args...))
	a := castOf(ts).actors["server"]
	serves := testkit.Holds(testkit.Patience, func() bool { return a.isOver() || strings.Contains(ts.ReadFile(a.out), "state ") })
	if !serves || a.isOver() {
		ts.Fatalf("the server does not serve; it said:\n%s%s", ts.ReadFile(a.out), ts.ReadFile(a.err))
	}
}
