package siege

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/tests/testkit"
)

// TestAQueueInADirectoryOfAll: gpu-scheduler keeps its things where it is
// started, and that may be where others can write. Who lays out its directory
// first does not get to say what it runs, and what it writes is for those whom
// its user's mask lets read it.
func TestAQueueInADirectoryOfAll(t *testing.T) {
	needsRoot(t)
	dir, err := os.MkdirTemp(programs, "csv-")
	testkit.Must(t, err)
	testkit.Must(t, os.Chmod(dir, 0o755))
	homes, open := filepath.Join(dir, "home"), filepath.Join(dir, "open")
	testkit.Must(t, os.Mkdir(homes, 0o755))
	testkit.Must(t, os.Mkdir(open, 0o755))
	testkit.Must(t, os.Chmod(open, 0o777|os.ModeSticky))
	eve, fay := enlist(t, "eve", homes, ""), enlist(t, "fay", homes, "")
	scheduler := "cd " + open + " && umask 077 && BERTH_SIM=2 " + filepath.Join(programs, "berth") + " compat gpu-scheduler "

	if out, status := eve.sh("mkdir -m 755 " + open + "/laid.json.d"); status != 0 {
		t.Fatal(out)
	}
	for _, words := range []string{"start", "pause 0"} {
		out, status := fay.sh(scheduler + "--state-file laid.json " + words)
		if status != 1 || !strings.Contains(out, "gpu-scheduler: ") || !strings.Contains(out, "belongs to user") {
			t.Errorf("%s in a directory that somebody else laid out ended with %d: %s", words, status, out)
		}
	}
	if left, _ := eve.sh("ls -A " + open + "/laid.json.d"); left != "" {
		t.Errorf("something was put there: %s", left)
	}
	out, status := fay.sh(scheduler + "pause 1")
	if status != 0 {
		t.Errorf("pause ended with %d: %s", status, out)
	}
	for _, path := range []string{"gpu_scheduler_state.json", "gpu_scheduler_state.json.d/state.lock"} {
		if out, status := eve.sh("cat " + filepath.Join(open, path)); status == 0 {
			t.Errorf("somebody else reads %s: %s", path, out)
		}
	}
}
