package siege

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/internal/tests/testkit"
)

// TestARunAnswersItsOwnUserOnly: nobody else reaches the queue of a berth run in a
// directory that everybody may read, nor would be answered there.
func TestARunAnswersItsOwnUserOnly(t *testing.T) {
	g := newGround(t, "ida")
	owner := enlist(t, "una", g.dir, g.path("none"))
	work := g.path("work")
	testkit.Must(t, os.Mkdir(work, 0o755), os.Chown(work, owner.uid, owner.gid))
	testkit.Write(t, g.path("work", "jobs.txt"), "exec sleep 300\n", 0o644)
	cmd := owner.command(filepath.Join(programs, "berth"), "run", "jobs.txt", "--sim", "1")
	var said testkit.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = work, append(cmd.Env, "BERTH_LEDGER_DIR="+g.path("ledger")), &said, &said
	testkit.Must(t, cmd.Start())
	t.Cleanup(func() { endRun(t, cmd, &said) })
	testkit.Eventually(t, "the job runs", func() bool { return strings.Contains(said.String(), "job 1 started") })

	socket := g.path("work", "berth_logs", "berth.sock")
	owner.socket, g.enemy.socket = socket, socket
	if conn, err := g.enemy.dial(); err == nil {
		conn.Close()
		t.Error("another user reaches the socket")
	}
	if out, status := g.enemy.berth("cancel", "all", "--log-dir", filepath.Dir(socket)); status == 0 {
		t.Errorf("another user cancels its jobs: %s", out)
	}
	testkit.Must(t, os.Chmod(socket, 0o666))
	for _, path := range []string{"/v1/status", "/v1/jobs"} {
		if r := g.enemy.mustAsk(t, "GET", path, nil); r.status != http.StatusForbidden {
			t.Errorf("another user is answered %d: %s", r.status, r.body)
		}
		if r := owner.mustAsk(t, "GET", path, nil); r.status != http.StatusOK {
			t.Errorf("its own user is answered %d: %s", r.status, r.body)
		}
	}
}

// endRun stops a run with its jobs.
func endRun(t *testing.T, cmd *exec.Cmd, said *testkit.Buffer) {
	t.Helper()
	testkit.Must(t, cmd.Process.Signal(syscall.SIGTERM))
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("the run ended with %d: %s", cmd.ProcessState.ExitCode(), said)
	}
}
