package siege

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// Reaching root through variables and programs.
var environmentAttacks = []attack{
	{"inherit the daemon's environment", func(t *testing.T, c *camp) {
		out := c.bob.does(t, "env; cat /proc/self/environ | tr '\\0' '\\n'")
		for _, word := range []string{rootCanary, "BERTH_LEDGER_DIR", "HOME=/root", "SECRET_OF_ROOT"} {
			if strings.Contains(out, word) {
				t.Errorf("the job has %s", around(out, word))
			}
		}
		if !strings.Contains(out, "USER="+c.bob.name) || !strings.Contains(out, "HOME="+c.bob.home) {
			t.Errorf("it is nobody's: %s", out)
		}
	}},
	{"have root run a program of the user's, or load a library", hostileVariables},
	{"see more cards than were given", func(t *testing.T, c *camp) {
		venv := filepath.Join(c.bob.home, "venv")
		testkit.Must(t, c.bob.as(func() error {
			if err := os.MkdirAll(filepath.Join(venv, "bin"), 0o755); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(venv, "bin", "activate"), []byte("export CUDA_VISIBLE_DEVICES=0,1 NVIDIA_VISIBLE_DEVICES=all BERTH_GPUS=0,1"), 0o755)
		}))
		const tell = `echo "[$CUDA_VISIBLE_DEVICES] [$NVIDIA_VISIBLE_DEVICES] [$BERTH_GPUS] [$CUDA_DEVICE_ORDER]"`
		all := spec{"CUDA_VISIBLE_DEVICES": "0,1", "NVIDIA_VISIBLE_DEVICES": "all", "BERTH_GPUS": "0,1", "CUDA_DEVICE_ORDER": "FASTEST_FIRST", "BERTH_JOB_ID": "1"}
		environ := []string{"CUDA_VISIBLE_DEVICES=0,1", "CUDA_VISIBLE_DEVICES=1,0", "NVIDIA_VISIBLE_DEVICES=all", "PATH=/usr/bin:/bin"}
		for _, more := range []spec{{}, {"env": all}, {"setup": "export CUDA_VISIBLE_DEVICES=0,1 NVIDIA_VISIBLE_DEVICES=all"}, {"venv": venv}} {
			s := spec{"command": tell, "gpus": 0}
			for key, value := range more {
				s[key] = value
			}
			id := c.bob.submitFrom(t, map[string]any{"dir": c.bob.home, "environ": environ, "jobs": []spec{s}})[0]
			c.bob.ended(t, id)
			if got := strings.TrimSpace(c.bob.log(t, id).body); got != "[] [void] [] [PCI_BUS_ID]" {
				t.Errorf("with %v it sees %s", more, got)
			}
		}
	}},
	{"lead berth's own variables astray", func(t *testing.T, c *camp) {
		id := c.bob.submitFrom(t, map[string]any{
			"dir": c.bob.home, "environ": []string{"BERTH_SIM_DIR=/tmp/evil", "BERTH_TOKEN=x:1:1", "BERTH_SIM_GPU=7", "BERTH_ATTEMPT=9", "PATH=/usr/bin:/bin"},
			"jobs": []spec{shell(`echo "$BERTH_SIM_DIR $BERTH_TOKEN $BERTH_SIM_GPU. $BERTH_ATTEMPT $BERTH_JOB_ID"`).with("env", spec{"BERTH_TOKEN": "y:1:1", "BERTH_JOB_ID": "1", "BERTH_ATTEMPT": "8"})},
		})[0]
		c.bob.ended(t, id)
		words := strings.Fields(c.bob.log(t, id).body)
		if len(words) != 5 || words[0] != filepath.Join(c.stateDir, "sim") || !strings.HasSuffix(words[1], ":"+id+":1") || words[2] != "." || words[3] != "1" || words[4] != id {
			t.Errorf("%q", words)
		}
	}},
	{"send environments that no process can have", func(t *testing.T, c *camp) {
		many := make([]string, 600_000)
		for i := range many {
			many[i] = "A" + strconv.Itoa(i) + "="
		}
		for name, environ := range map[string]any{
			"a zero byte": []string{"A=b\x00LD_PRELOAD=x"}, "no name": []string{"=b"}, "no value": []string{"A"}, "two megabytes": []string{"A=" + strings.Repeat("b", 2<<20)},
			"many": many, "not a list": "A=b", "numbers": []int{1},
		} {
			r := c.bob.mustAsk(t, "POST", "/v1/jobs", spec{"jobs": []spec{shell("true")}, "environ": environ})
			if r.status < 400 || r.status >= 500 {
				t.Errorf("%s: status %d: %.200s", name, r.status, r.body)
			}
		}
		for name, env := range map[string]any{"a zero byte": spec{"A": "b\x00c"}, "a bad name": spec{"A=B": "c"}, "no name": spec{"": "c"}, "a function": spec{"BASH_FUNC_x%%": "() { id; }"}} {
			r := c.bob.mustAsk(t, "POST", "/v1/jobs", spec{"jobs": []spec{shell("true").with("env", env)}})
			if r.status < 400 || r.status >= 500 {
				t.Errorf("env with %s: status %d: %.200s", name, r.status, r.body)
			}
		}
		for name, term := range map[string]string{"a zero byte": "xterm\x00LD_PRELOAD=/x", "a megabyte": strings.Repeat("x", 1<<20)} {
			r := c.bob.mustAsk(t, "POST", "/v1/jobs", spec{"jobs": []spec{shell("true")}, "environ": []string{"A=b"}, "term": term})
			if r.status < 400 || r.status >= 500 {
				t.Errorf("TERM with %s: status %d: %.200s", name, r.status, r.body)
			}
		}
		// Lines within a value are its own.
		id := c.bob.submitFrom(t, map[string]any{"environ": []string{"A=1\nUSER=root", "PATH=/usr/bin:/bin"}, "jobs": []spec{shell(`echo "$USER"`)}})[0]
		c.bob.ended(t, id)
		if got := strings.TrimSpace(c.bob.log(t, id).body); got != c.bob.name {
			t.Errorf("USER is %s", got)
		}
	}},
	{"read another's variables from a process list", func(t *testing.T, c *camp) {
		// Root's programs carry nothing of a job in their arguments, and their
		// environment is closed.
		id := c.annCanary(t)
		for range 20 {
			c.ann.log(t, id)
			for _, pid := range processes() {
				if owner(pid) != 0 {
					continue
				}
				if line := procFile(pid, "cmdline"); strings.Contains(line, "canary-of-ann") {
					t.Fatalf("process %d: %q", pid, line)
				}
			}
		}
		out, _ := c.bob.sh("cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep canary-of; true")
		if strings.Contains(out, "canary") {
			t.Errorf("bob reads %s", out)
		}
	}},
}

// hostileVariables gives a job everything that makes programs run other
// programs, and looks whose programs did.
func hostileVariables(t *testing.T, c *camp) {
	evil := filepath.Join(c.bob.home, "evil")
	ran := filepath.Join(evil, "ran")
	script := fmt.Sprintf("#!/bin/sh\nPATH=/usr/bin:/bin; id -u >>%s; exit 1\n", ran)
	names := []string{"getent", "id", "systemd-run", "systemctl", "nvidia-smi", "berth", "berth-keep", "sh", "bash", "env", "evil.sh", "loginctl", "busctl"}
	testkit.Must(t, c.bob.as(func() error {
		if err := os.Mkdir(evil, 0o755); err != nil {
			return err
		}
		for _, name := range names {
			if err := os.WriteFile(filepath.Join(evil, name), []byte(script), 0o755); err != nil {
				return err
			}
		}
		return os.WriteFile(filepath.Join(evil, "evil.so"), []byte("no library"), 0o755)
	}))
	hostile := []string{
		"PATH=" + evil + ":/usr/bin:/bin", "LD_PRELOAD=" + evil + "/evil.so", "LD_LIBRARY_PATH=" + evil, "LD_AUDIT=" + evil + "/evil.so",
		"BASH_ENV=" + evil + "/evil.sh", "ENV=" + evil + "/evil.sh", "GLIBC_TUNABLES=glibc.malloc.check=3", "PYTHONPATH=" + evil, "PYTHONSTARTUP=" + evil + "/evil.sh",
		"SHELL=" + evil + "/sh", "GODEBUG=execerrdot=0", "GOTRACEBACK=crash", "TMPDIR=" + evil, "XDG_STATE_HOME=" + evil, "BERTH_SOCKET=" + evil + "/sock", "IFS=/", "PS4=$(id)", "SHELLOPTS=xtrace",
	}
	ids := c.bob.submitFrom(t, map[string]any{"dir": evil, "environ": hostile, "jobs": []spec{
		shell("/bin/sleep 2"), shell("getent passwd 0"), shell("true").with("setup", "true"), shell("true").with("conda", "x"),
		{"command": []string{"berth", "list"}, "gpus": "0.004"}, shell("/bin/sleep 1").with("pty", "yes"),
	}})
	c.bob.running(t, ids[0])
	for _, pid := range processes() {
		if environ := procFile(pid, "environ"); owner(pid) == 0 && strings.Contains(environ, evil) {
			t.Errorf("root's process %d (%s) has %s", pid, procFile(pid, "cmdline"), around(environ, evil))
		}
	}
	for _, id := range ids {
		c.bob.ended(t, id)
		c.bob.log(t, id)
		c.bob.show(t, id)
	}
	out, err := os.ReadFile(ran)
	if err != nil {
		t.Fatalf("nothing of it ran, so nothing was tried: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		if strings.TrimSpace(line) != strconv.Itoa(c.bob.uid) {
			t.Errorf("a program of bob's ran as %s", line)
		}
	}
	if v := c.bob.show(t, ids[0]); v.Outcome == nil || *v.Outcome != job.OK {
		t.Errorf("the job itself ended %s", text(v.Outcome))
	}
}

func processes() (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// owner is the user of a process; -1: it is gone.
func owner(pid int) int {
	for line := range strings.Lines(procFile(pid, "status")) {
		if rest, found := strings.CutPrefix(line, "Uid:"); found {
			uid, _ := strconv.Atoi(strings.Fields(rest)[1])
			return uid
		}
	}
	return -1
}

func procFile(pid int, name string) string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	return string(data)
}

// alive reports whether a process is there and no zombie.
func alive(pid int) bool {
	return syscall.Kill(pid, 0) == nil && !strings.Contains(procFile(pid, "stat"), ") Z ")
}
