package cluster_test

import (
	"io"
	"os/exec"
	"strings"
	"testing"

	"berth/internal/slurm/cluster"
	"berth/internal/tests/testkit"
)

// TestTheTerminalOfAJob: it is reached through srun, as if the job were here.
func TestTheTerminalOfAJob(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("script"); err != nil {
		t.Skip("a terminal for the test needs script")
	}
	b := newBerth(t, testkit.SlurmSetup{GPUs: 1})
	id := b.submit("--pty", "--", `read word; echo "got $word on $SLURMD_NODENAME"; read more; exit 7`)
	b.running(id)
	attach := exec.Command("script", "--quiet", "--return", "--command", cluster.Programs()+"/berth attach "+id, "/dev/null")
	attach.Env, attach.Dir = b.env, b.dir
	var said testkit.Buffer
	attach.Stdout = &said
	in, err := attach.StdinPipe()
	testkit.Must(t, err, attach.Start())
	_, err = io.WriteString(in, "hello\n")
	testkit.Must(t, err)
	testkit.Eventually(t, "the job answers", func() bool { return strings.Contains(said.String(), "got hello on n1") })
	_, err = io.WriteString(in, "\n")
	testkit.Must(t, err)
	b.ends(id, "exit:7")
	over := make(chan struct{})
	go func() { _ = attach.Wait(); close(over) }() // its status is script's
	testkit.Eventually(t, "attach ends with the job", func() bool {
		select {
		case <-over:
			return true
		default:
			return false
		}
	})
}
