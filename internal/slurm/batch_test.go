package slurm

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestArguments(t *testing.T) {
	got := Arguments([]string{"--gres=gpu:1", "--comment=evil"}, Batch{
		Name: "two words\n--uid=0", Comment: "berth:7", Script: "/s/script", Tasks: []int{0, 1, 2, 3, 4}, Limit: 3, Log: "/s/100%/log",
	})
	want := []string{"--parsable", "--gres=gpu:1", "--comment=evil", "--job-name=two words_--uid=0", "--comment=berth:7", "--nodes=1", "--ntasks=1",
		"--export=ALL", "--chdir=/", "--output=/s/100%%/log", "--error=/s/100%%/log", "--open-mode=append", "--array=0-4%3", "/s/script"}
	if !slices.Equal(got, want) {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
	if alone := Arguments(nil, Batch{Limit: 3}); slices.ContainsFunc(alone, func(s string) bool { return strings.HasPrefix(s, "--array") }) {
		t.Errorf("%q", alone)
	}
	if odd := Arguments(nil, Batch{Tasks: []int{3, 5, 9}}); !slices.Contains(odd, "--array=3,5,9") {
		t.Errorf("%q", odd)
	}
}

func TestScript(t *testing.T) {
	run := func(program, dir string, env ...string) (out string, status int) {
		cmd := exec.Command("sh", "-c", string(Script(program, dir)))
		cmd.Env = append(env, "PATH=/usr/bin:/bin")
		raw, _ := cmd.CombinedOutput()
		return string(raw), cmd.ProcessState.ExitCode()
	}
	out, status := run("/bin/echo", "/a dir/it's", "SLURM_ARRAY_TASK_ID=7")
	if out != "__node /a dir/it's 7\n" || status != 0 {
		t.Errorf("%q, %d", out, status)
	}
	if out, _ := run("/bin/echo", "/d"); out != "__node /d 0\n" {
		t.Errorf("a job alone: %q", out)
	}
	for _, missing := range []string{"/no/such/berth", "/etc/passwd", "/etc"} {
		out, status := run(missing, "/d", "SLURMD_NODENAME=n7")
		if status != 127 || !strings.Contains(out, "node n7 has no program "+missing+"; the job was not started\nhint: ") {
			t.Errorf("%s: %q, %d", missing, out, status)
		}
	}
}

func TestSubmitted(t *testing.T) {
	for out, want := range map[string]string{"120\n": "120", "120;lab\n": "120", "welcome to the cluster\n121\n": "121", "": "", "Submitted batch job": "", "-1": ""} {
		if got, err := Submitted(out); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", out, got, err)
		}
	}
}

func TestEnviron(t *testing.T) {
	got := Environ([]string{"PATH=/bin", "SECRET=x", "SLURM_JWT=x", "SLURM_CONF=/c", "SLURM_ARRAY_TASK_ID=3", "SLURM_TIME_FORMAT=%s", "SBATCH_PARTITION=x", "SQUEUE_FORMAT=%i", "LANG=de_DE", "SLURMD_NODENAME=n1", "TZ=UTC"})
	if want := []string{"PATH=/bin", "SLURM_CONF=/c", "TZ=UTC", "LC_ALL=C"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
