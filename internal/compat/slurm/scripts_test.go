package slurm_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"berth/internal/testkit"
)

var programs string

func TestMain(m *testing.M) {
	os.Exit(testkit.RunWith(m, func(dir string) { programs = dir }, "cmd/berth", "cmd/berth-keep"))
}

// script is one of testdata/scripts.txtar.
type script struct {
	name, text, output, status string
	arguments                  []string
}

func scripts(t *testing.T) (list []script) {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/scripts.txtar")
	testkit.Must(t, err)
	for _, file := range archive.Files {
		name, kind, _ := strings.Cut(file.Name, ".")
		if kind == "sh" {
			list = append(list, script{name: name, text: string(file.Data), status: "0"})
			continue
		}
		switch last := &list[len(list)-1]; {
		case last.name != name:
			t.Fatalf("%s is not beside its script", file.Name)
		case kind == "out":
			last.output = string(file.Data)
		case kind == "status":
			last.status = strings.TrimSpace(string(file.Data))
		case kind == "arguments":
			last.arguments = strings.Fields(string(file.Data))
		}
	}
	if len(list) < 30 {
		t.Fatalf("%d scripts", len(list))
	}
	return list
}

// lay writes the scripts where they are to run.
func lay(t *testing.T, dir string, list []script) {
	t.Helper()
	for _, s := range list {
		testkit.Write(t, filepath.Join(dir, s.name+".sh"), s.text, 0o755)
	}
}

// judge compares what a script printed, its tasks in order, with what it should.
func (s *script) judge(t *testing.T, dir, node, status string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "out", s.name+".*"))
	testkit.Must(t, err)
	index := func(file string) int {
		n, _ := strconv.Atoi(file[strings.LastIndex(file, ".")+1:]) // 0: it is no array
		return n
	}
	slices.SortFunc(files, func(a, b string) int { return cmp.Compare(index(a), index(b)) })
	var printed strings.Builder
	for _, file := range files {
		printed.WriteString(strings.ReplaceAll(testkit.Read(t, file), node, "NODE"))
	}
	if got := printed.String(); got != s.output || status != s.status {
		t.Errorf("%s: status %s, printed:\n%s\nwant status %s:\n%s", s.name, status, got, s.status, s.output)
	}
}

// TestScriptsWrittenForSlurm do under berth what they do under Slurm.
func TestScriptsWrittenForSlurm(t *testing.T) {
	dir, list := t.TempDir(), scripts(t)
	lay(t, dir, list)
	socket := filepath.Join(dir, "sock")
	berth := func(args ...string) (string, error) {
		cmd := exec.Command(filepath.Join(programs, "berth"), args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "BERTH_SOCKET="+socket, "HOME="+dir)
		out, err := cmd.Output()
		if exit, failed := errors.AsType[*exec.ExitError](err); failed && exit.ExitCode() == 2 {
			t.Fatalf("berth %q: %s", args, exit.Stderr)
		}
		return strings.TrimSpace(string(out)), err
	}
	daemon := exec.Command(filepath.Join(programs, "berth"), "serve", "--private", "--sim", "2", "--poll", "0.2", "--socket", socket, "--state-dir", filepath.Join(dir, "state"))
	said := &testkit.Buffer{}
	daemon.Stdout, daemon.Stderr = said, said
	daemon.Env = append(os.Environ(), "HOME="+dir)
	testkit.Must(t, daemon.Start())
	t.Cleanup(func() {
		_, _ = berth("cancel", "all")
		_, _ = berth("stop")
		_ = daemon.Process.Kill()
		_ = daemon.Wait()
	})
	testkit.Eventually(t, "the daemon answers", func() bool { _, err := berth("status"); return err == nil })
	ids := make([]string, len(list))
	for i, s := range list {
		out, err := berth(append([]string{"submit", "--quiet", "--output", filepath.Join(dir, "out", s.name+".%a"), s.name + ".sh"}, s.arguments...)...)
		if err != nil {
			t.Fatalf("%s: %v: %s", s.name, err, said)
		}
		ids[i] = out
	}
	node, err := os.Hostname()
	testkit.Must(t, err)
	for i, s := range list {
		_, err := berth("wait", ids[i])
		status := "0"
		if exit, failed := errors.AsType[*exec.ExitError](err); failed {
			status = strconv.Itoa(exit.ExitCode())
		}
		s.judge(t, dir, node, status)
	}
}

// TestTheScriptsUnderARealSlurm: what berth is held to is true.
func TestTheScriptsUnderARealSlurm(t *testing.T) {
	c := newCluster(t, 1, 2, 4)
	list := scripts(t)
	lay(t, c.dir, list)
	testkit.Must(t, os.Mkdir(filepath.Join(c.dir, "out"), 0o755))
	ids := make([]string, len(list))
	for i, s := range list {
		ids[i] = c.must(t, "sbatch", append([]string{"--parsable", "--output", filepath.Join(c.dir, "out", s.name+".%a"), s.name + ".sh"}, s.arguments...)...)
	}
	testkit.Within(t, 4*testkit.Patience, "all have ended", func() bool { return c.must(t, "squeue", "--noheader") == "" })
	code := regexp.MustCompile(`ExitCode=(\d+):`)
	for i, s := range list {
		found := code.FindStringSubmatch(c.must(t, "scontrol", "show", "job", ids[i]))
		if found == nil {
			t.Fatalf("Slurm does not know job %s any more", ids[i])
		}
		s.judge(t, c.dir, "n1", found[1])
	}
}

// cluster is a real Slurm on this machine for one test, with device files that
// stand for GPUs.
type cluster struct {
	dir  string
	conf string
}

func newCluster(t *testing.T, nodes, gpus, cpus int) *cluster {
	t.Helper()
	for _, program := range []string{"slurmctld", "slurmd", "munged", "mknod"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("a real Slurm needs %s", program)
		}
	}
	if os.Getuid() != 0 {
		t.Skip("a real Slurm needs root")
	}
	dir, err := os.MkdirTemp("/var/tmp", "berth-slurm-") // other users reach it
	testkit.Must(t, err)
	c := &cluster{dir: dir, conf: filepath.Join(dir, "etc", "slurm.conf")}
	t.Cleanup(func() {
		c.run("testdata/cluster.sh", "down", dir)
		os.RemoveAll(dir)
	})
	if out, err := c.run("testdata/cluster.sh", "up", dir, fmt.Sprint(nodes), fmt.Sprint(gpus), fmt.Sprint(cpus)); err != nil {
		t.Fatalf("Slurm does not come up: %v\n%s", err, out)
	}
	return c
}

func (c *cluster) run(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "SLURM_CONF="+c.conf)
	if name[0] != 't' {
		cmd.Dir = c.dir
	}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (c *cluster) must(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := c.run(name, args...)
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return out
}
