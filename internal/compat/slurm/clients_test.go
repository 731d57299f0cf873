package slurm_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"berth/internal/tests/testkit"
)

// TestClientsOfSlurm: programs that were written for Slurm run on berth under its
// names. testdata/clients.txtar has one section for each: what it needs, as words
// for pip or the name of a program, and what to run with it.
func TestClientsOfSlurm(t *testing.T) {
	if testing.Short() {
		t.Skip("installs Python packages")
	}
	archive, err := txtar.ParseFile("testdata/clients.txtar")
	testkit.Must(t, err)
	dir := t.TempDir()
	newBerth(t, dir)
	for i := 0; i+1 < len(archive.Files); i += 2 {
		needs, script := archive.Files[i], archive.Files[i+1]
		name := strings.TrimSuffix(needs.Name, ".needs")
		t.Run(name, func(t *testing.T) {
			bin := install(t, strings.Fields(string(needs.Data)))
			work := filepath.Join(dir, name)
			testkit.Must(t, os.Mkdir(work, 0o755))
			testkit.Write(t, filepath.Join(work, script.Name), string(script.Data), 0o755)
			program := "sh"
			if strings.HasSuffix(script.Name, ".py") {
				program = filepath.Join(bin, "python3")
			}
			ctx, stop := context.WithTimeout(t.Context(), 4*testkit.Patience)
			defer stop()
			cmd := exec.CommandContext(ctx, program, script.Name)
			cmd.Dir = work
			cmd.Env = append(os.Environ(), "BERTH_SOCKET="+filepath.Join(dir, "sock"), "HOME="+work, "PATH="+filepath.Join(dir, "names")+":"+bin+":"+os.Getenv("PATH"))
			cmd.WaitDelay = 10 * time.Second
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// install makes packages available and returns where their programs are. They stay
// in the user's cache for the next run.
func install(t *testing.T, needs []string) (bin string) {
	t.Helper()
	if program, isProgram := strings.CutPrefix(needs[0], "program:"); isProgram {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
		return filepath.Dir(os.Args[0])
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	home := filepath.Join(cache, "berth-test-clients")
	bin = filepath.Join(home, "bin")
	if _, err := os.Stat(filepath.Join(bin, "pip")); errors.Is(err, os.ErrNotExist) {
		if out, err := exec.Command("python3", "-m", "venv", home).CombinedOutput(); err != nil {
			t.Skipf("no virtual environment of Python: %v: %s", err, out)
		}
	}
	if out, err := exec.Command(filepath.Join(bin, "pip"), append([]string{"install", "--quiet", "--disable-pip-version-check"}, needs...)...).CombinedOutput(); err != nil {
		t.Skipf("pip cannot install %s: %s", strings.Join(needs, " "), out)
	}
	return bin
}
