package slurm_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/internal/tests/testkit"
)

type runner func(program string, args ...string) (string, error)

// answer is what a program prints, in one line, and its status.
func (run runner) answer(t *testing.T, line string) string {
	t.Helper()
	words := strings.Fields(line)
	out, err := run(words[0], words[1:]...)
	if exit, failed := errors.AsType[*exec.ExitError](err); failed {
		return strconv.Itoa(exit.ExitCode()) // the words of a complaint are each one's own
	}
	testkit.Must(t, err)
	return strings.TrimSpace(strings.Join(strings.Fields(out), " ") + " 0")
}

// queueOfFour is two running jobs, one of two waiting ones an array.
func queueOfFour(t *testing.T, run runner) {
	t.Helper()
	for _, args := range []string{"-J b -t 10", "-J a -t 2:00:00", "-J c -t 30 -H", "-J d -t 1-0 -H --array=1-9%2"} {
		if out, err := run("sbatch", append(strings.Fields(args), "--gres=gpu:1", "--wrap", "sleep 600")...); err != nil {
			t.Fatalf("sbatch %s: %s, %v", args, out, err)
		}
	}
	testkit.Eventually(t, "two run", func() bool { out, _ := run("squeue", "-h", "-t", "R", "-o", "%t"); return out == "R\nR" })
}

// optionsThatSelect are used one after another. NODE and PARTITION are the only
// ones. None may be ignored: scancel would end jobs that nobody named.
const optionsThatSelect = `
squeue -h -S j -o %j: a b c d 0
squeue -h -S -j -o %j: d c b a 0
squeue -h -S i -o %j: b a c d 0
squeue -h -S l -o %j: b c a d 0
squeue -h -S -t,j -o %j: a b c d 0
squeue -h -S t,-j -o %j: d c b a 0
squeue -h -S j -p PARTITION -o %j: a b c d 0
squeue -h -p nosuch -o %j: 0
squeue -h -S j -w NODE -o %j: a b 0
squeue -w nosuch: 1
squeue -h -n d -o %K: 1-9%2 0
squeue --bogus: 1
squeue -u: 1
sinfo --bogus: 1
sinfo -h -s -o %F: 1/0/0/1 0
sinfo -h -R: 0
sinfo -h -p nosuch: 0
sinfo -h -n NODE -o %D: 1 0
sinfo -h -t drain -o %D: 0
sinfo -h -t alloc,mix -o %D: 1 0
scancel -p nosuch: 0
scancel -u root -p nosuch: 0
scancel -w nosuch: 0
scancel 99999: 0
scancel -n c 99999: 1
scancel -s USR1 99999: 1
scancel nonsense: 1
scancel -u: 1
scancel -t XX: 1
scancel --bogus: 1
squeue -h -S j -o %j: a b c d 0
scancel 99999 3 99998: 0
squeue -h -S j -o %j: a b d 0
scancel -w NODE: 0
squeue -h -S j -o %j: d 0
scancel -p PARTITION: 0
squeue -h -S j -o %j: 0
sbatch -t 1:2:3:4 --wrap true: 255
srun nosuchprog: 2
sbatch -Q -W killed.sh: 1
sbatch -Q -W exits.sh: 137
squeue -h -t F -n exits.sh -o %r%R: NonZeroExitCode(NonZeroExitCode) 0
squeue -h -t all -n killed.sh -o %r: JobLaunchFailure 0
scontrol show partition nosuch: 1
scontrol dance: 1
`

func selects(t *testing.T, run runner, dir, node, partition string) {
	t.Helper()
	testkit.Write(t, filepath.Join(dir, "killed.sh"), "#!/bin/sh\nkill -9 $$\n", 0o755)
	testkit.Write(t, filepath.Join(dir, "exits.sh"), "#!/bin/sh\nexit 137\n", 0o755)
	queueOfFour(t, run)
	for line := range strings.SplitSeq(strings.TrimSpace(optionsThatSelect), "\n") {
		command, want, _ := strings.Cut(strings.NewReplacer("NODE", node, "PARTITION", partition).Replace(line), ": ")
		if strings.HasPrefix(command, "scancel") { // it does not wait for the end of a job
			if got := run.answer(t, command); got != want {
				t.Errorf("%s: %s, want %s", command, got, want)
			}
			continue
		}
		got := ""
		for end := time.Now().Add(testkit.Patience); got != want && time.Now().Before(end); {
			if got = run.answer(t, command); !strings.HasPrefix(command, "squeue") {
				break
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", command, got, want)
		}
	}
}

// signalled prints which of its parts a signal reaches.
const signalled = `#!/bin/bash
trap 'echo script >>signalled' USR1
srun bash -c 'trap "echo step >>signalled" USR1; touch ready; while [ ! -e stop ]; do sleep 0.1; done'
while [ ! -e stop ]; do sleep 0.1; done
`

// signals: a step gets a signal, its script does not unless it is asked for.
func signals(t *testing.T, run runner, dir string) {
	t.Helper()
	testkit.Write(t, filepath.Join(dir, "signalled.sh"), signalled, 0o755)
	id, err := run("sbatch", "--parsable", "-t", "5", "signalled.sh")
	testkit.Must(t, err)
	exists := func(name string) bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
	testkit.Eventually(t, "the step runs", func() bool { return exists("ready") })
	if got := run.answer(t, "scancel --signal USR1 "+id); got != "0" {
		t.Errorf("scancel --signal: %s", got)
	}
	testkit.Eventually(t, "the step has it", func() bool { return exists("signalled") })
	if got := run.answer(t, "scancel -b -s SIGUSR1 "+id); got != "0" {
		t.Errorf("scancel -b: %s", got)
	}
	testkit.Write(t, filepath.Join(dir, "stop"), "", 0o644)
	testkit.Eventually(t, "the job ends", func() bool { return run.answer(t, "squeue -h -o %i") == "0" })
	if got := testkit.Read(t, filepath.Join(dir, "signalled")); got != "step\nscript\n" {
		t.Errorf("USR1 reached %q", got)
	}
}

func TestOptionsThatSelect(t *testing.T) {
	node, err := os.Hostname()
	testkit.Must(t, err)
	dir := t.TempDir()
	run := runner(newBerth(t, dir))
	selects(t, run, dir, node, "berth")
	signals(t, run, dir)
	if _, err := run("berth", "gpu", "pause", "1"); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "sinfo gives the reason", func() bool { return run.answer(t, "sinfo -h -R -o %E") == "GPU 1 paused 0" })
	for _, line := range []string{"scancel -A lab", "scancel -q normal", "squeue -A lab", "squeue -q normal", "squeue -i x", "squeue -S !"} {
		if got := run.answer(t, line); got != "1" {
			t.Errorf("%s: %s", line, got)
		}
	}
}

// TestOptionsThatSelectInARealSlurm: what berth is held to is true.
func TestOptionsThatSelectInARealSlurm(t *testing.T) {
	c := testkit.NewSlurm(t, testkit.SlurmSetup{})
	selects(t, c.Run, c.Dir, "n1", "all")
	signals(t, c.Run, c.Dir)
}

// TestWhatClientsAsk: questions of programs that use Slurm, and the part of the
// answer that they read.
func TestWhatClientsAsk(t *testing.T) {
	dir := t.TempDir()
	run := runner(newBerth(t, dir))
	testkit.Write(t, filepath.Join(dir, "whole.sh"), "#!/bin/sh\n#SBATCH --exclusive\n", 0o755)
	node, err := os.Hostname()
	testkit.Must(t, err)
	cpus, err := run("sinfo", "-h", "-o", "%c")
	testkit.Must(t, err)
	id, err := run("sbatch", "--parsable", "-H", "-J", "asked", "--wrap", "true")
	testkit.Must(t, err)
	for line := range strings.SplitSeq(strings.TrimSpace(`
sbatch --version: slurm 22.05.8
sinfo -V: slurm 22.05.8
sacctmgr -n -s list user root format=account%256: 0
sshare -U --format Account%256 --noheader: 0
sacctmgr add account lab: 1
scontrol show config: MinJobAge = 300 sec
scontrol show partition: PartitionName=berth
scontrol -o show partition berth: PartitionName=berth AllowGroups=ALL
scontrol -d -o show jobid=ID: JobId=ID JobName=asked
scontrol show nodes -o: NodeName=NODE CPUTot=
srun printenv SLURM_JOB_GID: GID 0
srun printenv SLURM_JOB_ACCOUNT: berth 0
sinfo -h -o %C: 0/CPUS/0/CPUS 0
sinfo -h -O CPUsState: 0/CPUS/0/CPUS 0
scontrol ping: Slurmctld(primary) at NODE is UP
`), "\n") {
		command, want, _ := strings.Cut(strings.NewReplacer("_GID", "_GID", "GID", strconv.Itoa(os.Getgid()), "/CPUS", "/"+cpus, "NODE", node, "ID", id).Replace(line), ": ")
		got := run.answer(t, command)
		if !strings.HasPrefix(got, want) && !strings.Contains(got, " "+want) {
			t.Errorf("%s: %s, want %s", command, got, want)
		}
	}
	for _, line := range []string{"sbatch --exclusive --wrap true", "sbatch --container=x --wrap true", "sbatch --uid=1 --wrap true", "salloc --exclusive=user true", "sbatch whole.sh"} {
		if got := run.answer(t, line); got != "255" && got != "1" {
			t.Errorf("%s: %s", line, got) // it would run on less than it asked for
		}
	}
	if got := run.answer(t, "srun -n 2 -l printenv SLURM_NTASKS"); got != "0: 2 1: 2 0" && got != "1: 2 0: 2 0" {
		t.Errorf("srun of two tasks: %s", got)
	}
	running, err := run("sbatch", "--parsable", "-c", "1", "--wrap", "sleep 600")
	testkit.Must(t, err)
	testkit.Eventually(t, "sinfo counts its CPU", func() bool { return strings.HasPrefix(run.answer(t, "sinfo -h -o %C"), "1/") })
	for args, want := range map[string]string{
		"scontrol update JobId=" + running + " TimeLimit=5": "job " + running + " is running", "scontrol foo bar": `"foo bar"`,
		"scancel -v 99999": "scancel: error: Kill job error on job id 99999: Invalid job id specified", "scancel -s USR1 99999": "Invalid job id",
	} {
		words := strings.Fields(args)
		cmd := exec.Command(filepath.Join(dir, "names", words[0]), words[1:]...)
		cmd.Env = append(os.Environ(), "BERTH_SOCKET="+filepath.Join(dir, "sock"))
		if out, _ := cmd.CombinedOutput(); !strings.Contains(string(out), want) {
			t.Errorf("%s says %q, want %s", args, out, want)
		}
	}
	if out, _ := run("scontrol", "-o", "show", "job", id); strings.Contains(out, "\n") {
		t.Errorf("scontrol -o: %s", out)
	}
}
