package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"berth/internal/tests/testkit"
)

// TestMain runs in the root of the repository, as the program does.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
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

func TestAWheelGivesAWorkingQueueWithoutGo(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil || exec.Command(python, "-m", "venv", "--help").Run() != nil {
		t.Skip("there is no python3 with venv")
	}
	out := t.TempDir()
	if err := build(out, []string{runtime.GOARCH}, []string{"wheel"}); err != nil {
		t.Fatal(err)
	}
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
	said, err := exec.Command(filepath.Join(bin, "pip"), "install", "--no-index", "--find-links", out, "berth").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	berth := filepath.Join(bin, "berth")
	if said, err := exec.Command(berth, "version").Output(); err != nil || !strings.Contains(string(said), "\nwheel: "+berth+"\n") {
		t.Errorf("%v: %s", err, said)
	}
	first(t, []string{berth}, bin)

	home := t.TempDir()
	client := exec.Command(filepath.Join(bin, "python"), "-c", "import berth; print(berth.__file__)")
	client.Dir, client.Env = home, []string{"HOME=" + home, "PATH=/usr/bin:/bin"}
	if said, err := client.CombinedOutput(); err != nil || !strings.HasPrefix(string(said), venv) {
		t.Errorf("%v: %s", err, said)
	}
}

func TestADebIsInstalledAndRuns(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("there is no dpkg-deb")
	}
	if exec.Command("go", "mod", "download", "github.com/goreleaser/nfpm/v2@v2.45.0").Run() != nil {
		t.Skip("nfpm cannot be fetched")
	}
	out := t.TempDir()
	if err := build(out, []string{runtime.GOARCH}, []string{"deb"}); err != nil {
		t.Fatal(err)
	}
	found, _ := filepath.Glob(filepath.Join(out, "*.deb"))
	if len(found) != 1 {
		t.Fatalf("%v", found)
	}
	root := t.TempDir()
	if said, err := exec.Command("dpkg-deb", "-x", found[0], root).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	for _, name := range []string{"usr/share/man/man1/berth-run.1.gz", "usr/share/bash-completion/completions/berth", "etc/berth/config.toml", "usr/lib/systemd/system/berth.socket", "usr/share/doc/berth/copyright"} {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Error(err)
		}
	}
	if unit := testkit.Read(t, filepath.Join(root, "usr/lib/systemd/system/berth.service")); !strings.Contains(unit, "ExecStart=/usr/bin/berth serve\n") {
		t.Errorf("%s", unit)
	}
	bin := filepath.Join(root, "usr/bin")
	if said, err := exec.Command(filepath.Join(bin, "berth"), "version").Output(); err != nil || !strings.Contains(string(said), " package: ") {
		t.Errorf("%v: %s", err, said)
	}
	first(t, []string{filepath.Join(bin, "berth")}, bin)
}

func TestTwoBuildsGiveTheSameBytes(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	for _, out := range []string{one, two} {
		if err := build(out, []string{runtime.GOARCH}, []string{"tarball", "wheel"}); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := testkit.Read(t, filepath.Join(one, "SHA256SUMS")), testkit.Read(t, filepath.Join(two, "SHA256SUMS")); a != b || a == "" {
		t.Errorf("%s\n%s", a, b)
	}
}
