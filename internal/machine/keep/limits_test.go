package keep

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A directory with the kernel's files replaces a cgroup of version 2 that
// has the controllers.
func fakeCgroup(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLimitsAreWrittenToTheJobsOwnCgroup(t *testing.T) {
	t.Parallel()
	dir := fakeCgroup(t, map[string]string{
		"memory.max": "", "memory.swap.max": "", "memory.oom.group": "", "cpu.max": "",
		"memory.events": "low 0\nhigh 2\nmax 9\noom 1\noom_kill 1\noom_group_kill 1\n", "memory.peak": "4194304\n",
	})
	l := enforce(Order{CPUs: 2, MemMiB: 4}, "token", dir)
	if l.own != dir || len(l.join) != 0 || l.note != "" {
		t.Errorf("got %+v", l)
	}
	for name, want := range map[string]string{"memory.max": "4194304", "memory.swap.max": "0", "memory.oom.group": "1", "cpu.max": "200000 100000"} {
		if text, _ := os.ReadFile(filepath.Join(dir, name)); string(text) != want {
			t.Errorf("%s is %q, not %q", name, text, want)
		}
	}
	if killed, peak := l.verdict(); !killed || peak != 4096 {
		t.Errorf("killed %v, peak %d", killed, peak)
	}
	os.WriteFile(filepath.Join(dir, "memory.events"), []byte("oom 3\noom_kill 0\n"), 0o644)
	if killed, _ := l.verdict(); killed {
		t.Error("a job that was only pressed was not killed")
	}
}

func TestWhatIsNotThereIsNoted(t *testing.T) {
	t.Parallel()
	l := enforce(Order{CPUs: 2, MemMiB: 4}, "token", fakeCgroup(t, map[string]string{"cpu.max": ""}))
	if l.own == "" || l.memory != "" || !strings.HasPrefix(l.note, "memory limit of 4 MiB not enforced") || strings.Contains(l.note, "CPUs") {
		t.Errorf("got %+v", l)
	}
	l.lost()
	if l.own != "" || !strings.Contains(l.note, "limits not enforced") {
		t.Errorf("got %+v", l)
	}
	if l := enforce(Order{}, "token", ""); l.note != "" || l.own != "" || len(l.join) != 0 {
		t.Errorf("a job without limits: %+v", l)
	}
}
