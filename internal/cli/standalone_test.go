package cli_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/internal/tests/testkit"
)

// TestTheMgpuProgramsStandAlone: no library and no other file is needed. In a
// directory that is the whole file system there is neither, and the programs
// still work as far as they can without a server.
//
// seeds: M28
func TestTheMgpuProgramsStandAlone(t *testing.T) {
	program := filepath.Join(binaries, "berth-main")
	file, err := elf.Open(program)
	testkit.Must(t, err)
	defer file.Close()
	if libraries, err := file.ImportedLibraries(); err != nil || len(libraries) > 0 {
		t.Errorf("it needs %v, %v", libraries, err)
	}
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("it needs a loader")
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can run a program where there is no other file")
	}
	text, err := os.ReadFile(program)
	testkit.Must(t, err)
	for name, c := range map[string]struct {
		args []string
		says string
		code int
	}{
		"mgpu_scheduler_server": {[]string{"--help"}, "usage: mgpu_scheduler_server", 0},
		"mgpu_srun":             {[]string{"--", "true"}, "--gpu-ids is missing", 1},
		"mgpu_queue":            {[]string{"--help"}, "usage: mgpu_queue", 0},
		"mgpu_cancel":           {[]string{"--help"}, "usage: mgpu_cancel", 0},
	} {
		empty := t.TempDir()
		testkit.Must(t, os.WriteFile(filepath.Join(empty, name), text, 0o755))
		cmd := exec.Command("/"+name, c.args...)
		cmd.Env, cmd.Dir, cmd.SysProcAttr = []string{}, "/", &syscall.SysProcAttr{Chroot: empty}
		said, _ := cmd.CombinedOutput() // the status is checked below
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != c.code || !strings.Contains(string(said), c.says) {
			t.Errorf("%s: %v, it says %q", name, cmd.ProcessState, said)
		}
	}
}
