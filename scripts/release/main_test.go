package main

import (
	"debug/elf"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"berth/internal/tests/testkit"
)

// TestMain runs in the root of the repository, as the program does.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(built.dir)
	os.Exit(code)
}

// built is what make dist builds, made once for all tests.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// kinds are the kinds of files that can be built here.
func kinds() []string {
	if exec.Command("go", "mod", "download", strings.Replace(nfpm, "/cmd/nfpm", "", 1)).Run() != nil {
		return []string{"wheel", "tarball"}
	}
	return []string{"wheel", "tarball", "deb", "rpm"}
}

// dist returns the directory of the built files.
func dist(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "berth-dist-"); built.err == nil {
			built.err = build(built.dir, []string{"amd64", "arm64"}, kinds())
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.dir
}

// first is the first example of the README, on what was installed into a
// directory, with neither Go nor anything else of this machine in PATH.
func first(t *testing.T, argv []string, bin string) {
	t.Helper()
	home := t.TempDir()
	jobs := filepath.Join(home, "jobs.txt")
	testkit.Write(t, jobs, "[name=a vram=4G] berth simjob --vram 3000 --hold 0.1\n[after=a] echo after\n")
	cmd := exec.Command(argv[0], append(argv[1:], "run", jobs, "--own", "--sim", "2")...)
	cmd.Dir = home
	cmd.Env = []string{"HOME=" + home, "XDG_RUNTIME_DIR=" + home, "PATH=" + bin + ":/usr/bin:/bin"}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "2 jobs in") {
		t.Errorf("%v: %v\n%s", argv, err, out)
	}
}

// killed is a sweep from Python whose daemon is killed half-way. It prints whether
// the client is the installed one, every result is in the table, and no trial ran
// twice.
const killed = `
import os, signal, sys, berth
client = berth.Client()
sweep = client.sweep("echo {i} >>calls; echo loss={i}; while [ {i} -ge 100 ] && [ ! -e go ] && [ -e calls ]; do sleep 0.1; done", {"i": range(200)},
                     metrics=["loss"], vram="200M", max=40)
ended = sweep.as_completed(timeout="10m")
for _ in range(100):
    next(ended)
os.kill(client.status()["pid"], signal.SIGKILL)
open("go", "w").close()
rest = len(list(ended))
table = [(row["outcome"], row["loss"]) for row in sweep.table()] == [("ok", i) for i in range(200)]
once = rest == 100 and sorted(map(int, open("calls"))) == list(range(200))
os.kill(client.status()["pid"], signal.SIGTERM)
print(berth.__file__.startswith(sys.prefix), table, once)
`

func TestAWheelGivesAWorkingQueueWithoutGo(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil || exec.Command(python, "-m", "venv", "--help").Run() != nil {
		t.Skip("there is no python3 with venv")
	}
	out := dist(t)
	sums := exec.Command("sha256sum", "-c", "SHA256SUMS")
	sums.Dir = out
	if said, err := sums.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, said)
	}
	venv := filepath.Join(t.TempDir(), "venv")
	if said, err := exec.Command(python, "-m", "venv", venv).CombinedOutput(); err != nil {
		t.Skipf("no virtual environment can be made: %v: %s", err, said)
	}
	bin := filepath.Join(venv, "bin")
	// As the README says it. Without --no-index, pip prefers another project of this name.
	_, line, _ := strings.Cut(testkit.Read(t, "README.md"), "\npip install ")
	line, _, _ = strings.Cut(line, "#")
	install := exec.Command(filepath.Join(bin, "pip"), append([]string{"install"}, strings.Fields(line)...)...)
	install.Dir = out
	if said, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	berth := filepath.Join(bin, "berth")
	if said, err := exec.Command(berth, "version").Output(); err != nil || !strings.Contains(string(said), "\nwheel: "+berth+"\n") {
		t.Errorf("%v: %s", err, said)
	}
	first(t, []string{berth}, bin)

	home := t.TempDir()
	client := exec.Command(filepath.Join(bin, "python"), "-c", killed)
	client.Dir, client.Env = home, []string{"HOME=" + home, "PATH=/usr/bin:/bin", "BERTH_SIM=2"}
	if said, err := client.CombinedOutput(); err != nil || string(said) != "True True True\n" {
		t.Errorf("%v: %s", err, said)
	}
}

func TestTwoBuildsGiveTheSameBytes(t *testing.T) {
	again := t.TempDir()
	if err := build(again, []string{"amd64", "arm64"}, kinds()); err != nil {
		t.Fatal(err)
	}
	if a, b := testkit.Read(t, filepath.Join(dist(t), "SHA256SUMS")), testkit.Read(t, filepath.Join(again, "SHA256SUMS")); a != b || a == "" {
		t.Errorf("%s\n%s", a, b)
	}
}

func TestProgramsAreForTheArchitectureOfTheirFile(t *testing.T) {
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		found, _ := filepath.Glob(filepath.Join(dist(t), "berth-*-"+arch+".tar.gz"))
		if len(found) != 1 {
			t.Fatalf("%s: %v", arch, found)
		}
		dir := t.TempDir()
		if said, err := exec.Command("tar", "-xzf", found[0], "-C", dir, "--strip-components=1").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		for _, name := range []string{"berth", "berth-main", "berth-keep", "berth-gpu"} {
			program, err := elf.Open(filepath.Join(dir, "bin", name))
			if name == "berth-gpu" && errors.Is(err, fs.ErrNotExist) {
				continue // there is no C compiler for it
			}
			if err != nil {
				t.Error(err)
				continue
			}
			libraries, _ := program.ImportedLibraries()
			if static := len(libraries) == 0; program.Machine != machine || static != (name != "berth-gpu") {
				t.Errorf("%s: %s for %v, with %v", arch, name, program.Machine, libraries)
			}
			program.Close()
		}
	}
}
