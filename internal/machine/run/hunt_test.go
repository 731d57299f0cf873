package run

import (
	"os/exec"
	"syscall"
	"testing"

	"berth/internal/machine/keep"
)

// Anybody can see a supervisor's token. A job is over all the same, and nobody's
// processes end for it but its own user's.
func TestALostJobIsOverWhateverOthersPutIntoTheirEnvironment(t *testing.T) {
	t.Parallel()
	b := newLab(t)
	token := b.start(b.ordered("1", "env -i BERTH_TOKEN=$BERTH_TOKEN setsid sleep 1000 & echo $! > own; sleep 1000"))
	started := b.next(Started).Record
	own := b.pidFrom("own")
	cmd := exec.Command("/bin/sleep", "1000")
	cmd.Env = []string{"BERTH_TOKEN=" + keep.TokenValue(token, "1", 1)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: neighbour, Gid: neighbour}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	other, err := keep.ReadProcess(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	keeper, err := keep.ReadProcess(started.KeepPID)
	if err != nil {
		t.Fatal(err)
	}
	keeper.Signal(9)
	if r := b.next(Lost).Record; r.UID != otherUser {
		t.Errorf("the record says it was user %d's", r.UID)
	}
	b.gone(own)
	if !lives(other) {
		t.Error("another user's process was ended")
	}
}
