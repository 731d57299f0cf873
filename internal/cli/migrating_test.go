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
	"strings"
	"syscall"
	"testing"

	"berth/internal/cli"
	"berth/internal/tests/testkit"
)

// TestEveryCommandOfTheMigrationPagesWorks runs every command that the pages for
// people who come from another scheduler tell them to type, on simulated GPUs
// and with sample files: a flag that does not exist fails here, not at their
// desks.
func TestEveryCommandOfTheMigrationPagesWorks(t *testing.T) {
	pages, err := filepath.Glob("../../docs/howto/from-*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, "../../docs/howto/move-running-work.md")
	h := newHousehold(t)
	known := map[toType]bool{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		before := len(known)
		for _, c := range commandsToType(string(text)) {
			if known[c] {
				continue
			}
			known[c] = true
			t.Run(c.line, func(t *testing.T) {
				t.Parallel()
				h.try(t, c)
			})
		}
		if len(known) == before {
			t.Errorf("%s has no command to type", page)
		}
	}
	if len(pages) < 11 || len(known) < 100 {
		t.Errorf("only %d commands to type on %d pages", len(known), len(pages))
	}
}

// toType is a command of a page.
type toType struct {
	line  string
	stays bool // it keeps running until it is stopped
}

var inBackticks = regexp.MustCompile("`([^`]+)`( \\(keeps running\\))?")

// commandsToType are the commands in the tables, in all columns but the first.
// Cells that are about code, or say that nothing changes, have none.
func commandsToType(page string) (commands []toType) {
	for line := range strings.Lines(page) {
		line = strings.ReplaceAll(strings.TrimSpace(line), `\|`, "\x00")
		if !strings.HasPrefix(line, "|") {
			continue
		}
		for _, cell := range strings.Split(strings.Trim(line, "|"), "|")[1:] {
			for _, form := range inBackticks.FindAllStringSubmatch(cell, -1) {
				c := toType{strings.ReplaceAll(form[1], "\x00", "|"), form[2] != ""}
				if !strings.HasPrefix(c.line, "from ") {
					commands = append(commands, c)
				}
			}
		}
	}
	return commands
}

// household is one daemon on eight GPUs, and the programs that people have.
type household struct {
	dir, bin, socket string
}

func newHousehold(t *testing.T) household {
	t.Helper()
	dir, err := os.MkdirTemp("", "m") // short: a socket's path has a limit
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := household{dir: dir, bin: filepath.Join(dir, "bin"), socket: filepath.Join(dir, "s", "berth.sock")}
	if err := os.Mkdir(h.bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range cli.ProgramNames() {
		if err := os.Symlink(filepath.Join(binaries, "berth"), filepath.Join(h.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"python", "torchrun", "make"} {
		testkit.Write(t, filepath.Join(h.bin, name), "#!/bin/sh\nexit 0\n", 0o755)
	}
	var said bytes.Buffer
	daemon := h.command(context.Background(), t.TempDir(), "exec berth serve --private --sim 8 --poll 0.05 --state-dir "+filepath.Dir(h.socket))
	daemon.Stdout, daemon.Stderr = &said, &said
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if out, err := h.command(context.Background(), dir, "berth cancel all --grace 0; berth wait all").CombinedOutput(); err != nil {
			t.Logf("tidy up: %v\n%s", err, out)
		}
		_ = daemon.Process.Signal(syscall.SIGTERM)
		_ = daemon.Wait() // it was told to end
	})
	if !testkit.Holds(testkit.Patience, func() bool { return h.command(context.Background(), dir, "berth list").Run() == nil }) {
		t.Fatalf("the daemon does not serve: %s", said.String())
	}
	return h
}

// command is a line as it would be typed in that directory.
func (h household) command(ctx context.Context, dir, line string) *exec.Cmd {
	command := exec.CommandContext(ctx, "sh", "-c", line)
	command.Dir = dir
	command.WaitDelay = testkit.Patience
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Env = []string{
		"PATH=" + h.bin + ":" + binaries + ":" + os.Getenv("PATH"), "HOME=" + dir, "BERTH_SOCKET=" + h.socket, "BERTH_SIM=8",
		"XDG_STATE_HOME=" + filepath.Join(dir, "state"), "BERTH_LEDGER_DIR=" + filepath.Join(dir, "ledger"), "TMPDIR=" + dir,
		"BERTH_BINARY=" + filepath.Join(binaries, "berth"), "PYTHONDONTWRITEBYTECODE=1",
	}
	return command
}

const sweep = `from %s import GPUScheduler, Job
results = GPUScheduler(n_gpus=2, jobs_per_gpu=2, check_interval=0.1).run_jobs([Job(command="true"), Job(command="exit 0", job_name="b")])
assert results == [0, 0], results
`

// desk is a directory with the files that the pages mention.
func desk(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "m")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(repository, "python"), filepath.Join(dir, "python")); err != nil {
		t.Fatal(err)
	}
	for _, venv := range []string{".venv", "venv"} {
		if err := os.MkdirAll(filepath.Join(dir, venv, "bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		testkit.Write(t, filepath.Join(dir, venv, "bin", "activate"), "", 0o644)
	}
	if err := os.Mkdir(filepath.Join(dir, "run1"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"train.sh": "#!/bin/sh\n#SBATCH --job-name=a\ntrue\n", "train.py": "", "jobs.txt": "true\n[vram=1G] true\n", "commands.txt": "true\n", "gpu.queue": "true\n",
		"jobs.csv": "0,train.py,,--epochs 3,0-3\n", "llm_config.json": `{"default_requirement": 1.0, "models": {"small": 0.5}}`,
		"job.yaml": "command: true\nnum_gpus: 2\npriority: 5\n",
		"sweep.py": fmt.Sprintf(sweep, "kairos"), "sweep_berth.py": fmt.Sprintf(sweep, "berth"),
	} {
		testkit.Write(t, filepath.Join(dir, name), text, 0o644)
	}
	return dir
}

// try types one command of a page.
func (h household) try(t *testing.T, c toType) {
	if _, err := exec.LookPath("python3"); err != nil && strings.Contains(c.line, "python3") {
		t.Skip("there is no python3")
	}
	if _, err := exec.LookPath("screen"); err != nil && strings.Contains(c.line, "--screen") {
		t.Skip("there is no screen")
	}
	dir := desk(t)
	line := h.withIDs(t, dir, c.line)
	if strings.Contains(line, "--conda") {
		line = "export CONDA_EXE=/opt/conda/bin/conda; " + line
	}
	if strings.Contains(line, "simjob --") {
		line = "export " + h.box() + "; " + line // typed by hand, it is an external process on the daemon's GPUs
	}
	if strings.Contains(line, "gpu pause") || strings.Contains(line, "gpu drain") || strings.Contains(line, "gpu-scheduler pause") {
		line += " && berth gpu resume all" // the others need them
	}
	if strings.Contains(line, "group remove") {
		line = "berth group set io --limit 2 && " + line // it may be the first
	}
	if c.stays {
		h.stays(t, dir, line)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	if out, err := h.command(ctx, dir, line).CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", line, err, out)
	}
}

// withIDs puts a job or a process of its own in place of those on the page: a
// waiting job, or a finished one for commands about those.
func (h household) withIDs(t *testing.T, dir, line string) string {
	t.Helper()
	if strings.Contains(line, "4242") {
		return strings.ReplaceAll(line, "4242", h.external(t, dir))
	}
	id := regexp.MustCompile(`\b17\b|K3ZX81QA`)
	named := strings.HasPrefix(line, "berth cancel") && strings.HasSuffix(line, " --name a")
	last := strings.Contains(line, "--after @") // needs a last job
	if !id.MatchString(line) && !named && !last {
		return line
	}
	how := "-q --gpus 0 --begin now+5h -- true"
	switch {
	case named:
		how = "--name a " + how
	case regexp.MustCompile(`logs|wait|requeue|--after`).MatchString(line):
		how = "-q --gpus 0 --wait -- true"
	case strings.Contains(line, "release"):
		how = "-q --gpus 0 --hold -- true"
	}
	out, err := h.command(context.Background(), dir, "berth submit "+how).Output()
	if err != nil {
		t.Fatalf("submit %s: %v", how, err)
	}
	return id.ReplaceAllString(line, strings.Fields(string(out))[0])
}

// external is a process on one of the daemon's GPUs that berth did not start.
func (h household) external(t *testing.T, dir string) string {
	t.Helper()
	command := h.command(context.Background(), dir, "exec berth simjob --gpu 7 --vram 1000 --hold 600")
	command.Env = append(command.Env, h.box())
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait() // it was killed
	})
	pid := fmt.Sprint(command.Process.Pid)
	if !testkit.Holds(testkit.Patience, func() bool {
		out, err := h.command(context.Background(), dir, "berth gpus -v").Output()
		return err == nil && strings.Contains(string(out), pid)
	}) {
		t.Fatalf("the daemon does not see process %s", pid)
	}
	return pid
}

// box is where the daemon's simulated GPUs are.
func (h household) box() string {
	return "BERTH_SIM_DIR=" + filepath.Join(filepath.Dir(h.socket), "sim")
}

// stays starts a command that keeps running, with its own place for a daemon,
// and stops it once it has printed something.
func (h household) stays(t *testing.T, dir, line string) {
	h.socket = filepath.Join(dir, "d", "berth.sock")
	if err := os.Mkdir(filepath.Dir(h.socket), 0o700); err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(line, "mgpu_scheduler_server") || strings.HasPrefix(line, "berth serve") {
		line += " --state-dir " + filepath.Join(dir, "d")
	}
	if strings.HasPrefix(line, "berth serve") {
		line += " --private"
	}
	command := h.command(context.Background(), dir, "exec "+line)
	out, err := os.Create(filepath.Join(dir, "said"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	command.Stdout, command.Stderr = out, out
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() { over <- command.Wait() }()
	spoke := testkit.Holds(testkit.Patience, func() bool { info, err := out.Stat(); return err == nil && info.Size() > 0 })
	_ = syscall.Kill(-command.Process.Pid, syscall.SIGTERM) // every part of a pipeline
	err = <-over
	said, _ := os.ReadFile(out.Name())
	var exit *exec.ExitError
	// Killed by the signal or stopped because of it: both are fine.
	badly := errors.As(err, &exit) && (exit.ExitCode() == 1 || exit.ExitCode() == 2)
	if !spoke || badly {
		t.Errorf("%s: %v\n%s", line, err, said)
	}
}
