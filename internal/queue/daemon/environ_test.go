package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue/config"
)

// environOf runs `env` with a request's changes and returns what it printed.
func (l *lab) environOf(captured []string, pairs ...string) map[string]string {
	l.t.Helper()
	spec := sh("exec env -0", pairs...)
	reply, err := api.Call(l.ctx, l.Client, api.Submit, api.SubmitRequest{Jobs: []api.Spec{spec}, Dir: l.dir(), Environ: captured})
	if err != nil {
		l.t.Fatal(err)
	}
	vars := map[string]string{}
	for pair := range strings.SplitSeq(l.finished(reply.Jobs[0].ID), "\x00") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			vars[name] = value
		}
	}
	return vars
}

func wantVars(t *testing.T, got map[string]string, want ...string) {
	t.Helper()
	for _, pair := range want {
		name, value, set := strings.Cut(pair, "=")
		if have, has := got[name]; has != set || have != value {
			t.Errorf("%s is %q (set: %v), want %q (set: %v)", name, have, has, value, set)
		}
	}
}

func TestAJobsEnvironment(t *testing.T) {
	t.Setenv("SECRET_OF_THE_DAEMON", "x")
	l := newLab(t)
	captured := []string{"A=1", "B=two words", "PATH=/usr/bin:/bin", "EMPTY=", "A=last", "CUDA_VISIBLE_DEVICES=7", "BERTH_JOB_ID=9", "BERTH_ARRAY_INDEX=4", "LINES=a\nb"}
	user := l.d.people.Name(os.Getuid())

	all := l.environOf(captured, "gpus", "1", "name", "train", "vram", "4G")
	wantVars(t, all, "A=last", "B=two words", "EMPTY=", "LINES=a\nb", "BERTH_JOB_NAME=train", "BERTH_VRAM_MIB=4096", "BERTH_ATTEMPT=1",
		"CUDA_VISIBLE_DEVICES=0", "CUDA_DEVICE_ORDER=PCI_BUS_ID", "NVIDIA_VISIBLE_DEVICES=0", "BERTH_GPUS=0", "PYTHONUNBUFFERED=1",
		"BERTH_JOB_ID=1", "BERTH_ARRAY_INDEX", "SECRET_OF_THE_DAEMON", "LOGNAME="+user, "USER="+user)
	if !strings.HasPrefix(all["PATH"], "/usr/bin:/bin:") {
		t.Errorf("PATH is %s", all["PATH"])
	}
	none := l.environOf(captured, "gpus", "0", "export", "none")
	wantVars(t, none, "A", "B", "EMPTY", "USER="+user, "CUDA_VISIBLE_DEVICES=", "NVIDIA_VISIBLE_DEVICES=void", "BERTH_GPUS=")
	if none["PATH"] == "" || none["HOME"] == "" || none["SHELL"] == "" {
		t.Errorf("a bare job has PATH=%q HOME=%q SHELL=%q", none["PATH"], none["HOME"], none["SHELL"])
	}
	wantVars(t, l.environOf(captured, "gpus", "0", "export", "B,NONE"), "A", "B=two words", "NONE")
	wantVars(t, l.environOf(captured, "gpus", "0", "env.A", "mine", "env.CUDA_VISIBLE_DEVICES", "5", "env.BERTH_GPUS", "5", "export", "none"),
		"A=mine", "CUDA_VISIBLE_DEVICES=", "BERTH_GPUS=")
	wantVars(t, l.environOf(captured, "ids", "1,0", "setup", "export CUDA_VISIBLE_DEVICES=6 BERTH_GPUS=6 FROM_SETUP=yes"),
		"CUDA_VISIBLE_DEVICES=1,0", "BERTH_GPUS=1,0", "FROM_SETUP=yes", "A=last")
	wantVars(t, l.environOf(nil, "gpus", "0"), "A", "SECRET_OF_THE_DAEMON", "USER="+user)
}

func TestAnEnvironmentIsStoredOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for range 3 {
		l.submit(sh("true", "hold", "yes"), sh("true", "hold", "yes"))
	}
	names := map[string]bool{}
	if err := l.d.svc.queue.Store.Each(func(j *job.Job) error { names[j.Environ] = true; return nil }); err != nil {
		t.Fatal(err)
	}
	if len(names) != 1 || names[""] {
		t.Errorf("environments %v", names)
	}
	// It is there for the job's start after a restart, too.
	l.restart()
	l.act(api.ActRelease, "1")
	if j := l.end("1"); value(j.Outcome) != job.OK {
		t.Errorf("it ended %s: %s", value(j.Outcome), value(j.Reason))
	}
}

func TestWhereAJobRuns(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := filepath.Join(l.dir(), "sub")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	home := l.d.people.Home(os.Getuid())
	for _, row := range []struct{ from, dir, want string }{
		{l.dir(), "", l.dir()}, {l.dir(), "sub", sub}, {l.dir(), sub, sub}, {sub, "..", l.dir()}, {sub, "~", home}, {"", "", home},
	} {
		spec := sh("pwd -P", "gpus", "0")
		if row.dir != "" {
			spec.Set("dir", row.dir)
		}
		reply, err := api.Call(l.ctx, l.Client, api.Submit, api.SubmitRequest{Jobs: []api.Spec{spec}, Dir: row.from})
		if err != nil {
			t.Fatal(err)
		}
		want, err := filepath.EvalSymlinks(row.want)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.finished(reply.Jobs[0].ID); got != want+"\n" {
			t.Errorf("from %q with dir %q it ran in %q, want %q", row.from, row.dir, got, want)
		}
	}
	missing := l.one(sh("true", "gpus", "0", "dir", "nowhere"))
	if j := l.end(missing); value(j.Outcome) != job.Launch || !strings.Contains(value(j.Reason), "nowhere") {
		t.Errorf("in a directory that is not there it ended %s: %s", value(j.Outcome), value(j.Reason))
	}
}

func TestSetUps(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	if err := os.MkdirAll(filepath.Join(l.dir(), "venv/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	l.write(filepath.Join(l.dir(), "venv/bin/activate"), "export VIRTUAL_ENV=here\n")
	if got := l.finished(l.one(sh("echo $VIRTUAL_ENV $X", "gpus", "0", "venv", "venv", "setup", "X=1; export X"))); got != "here 1\n" {
		t.Errorf("with a venv and a set-up: %q", got)
	}
	for key, val := range map[string]string{"venv": "nothere", "setup": "exit 7", "conda": "nosuchenvironment"} {
		id := l.one(sh("echo ran", "gpus", "0", key, val))
		if j := l.end(id); value(j.Outcome) != job.Launch || !strings.Contains(value(j.Reason), "set-up failed") {
			t.Errorf("%s=%s ended %s: %s", key, val, value(j.Outcome), value(j.Reason))
		}
		if log := l.log(id); strings.Contains(log, "ran") || !strings.Contains(log, "set-up failed") {
			t.Errorf("%s=%s: log %q", key, val, log)
		}
	}
}

func TestOutputPatterns(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	user := l.d.people.Name(os.Getuid())
	for pattern, want := range map[string]string{
		"out":         filepath.Join(l.dir(), "out"),
		"%j/%n.%u.%%": filepath.Join(l.dir(), "ID", "a_b."+user+".%"),
		"/dev/null":   "/dev/null",
		"x%a":         filepath.Join(l.dir(), "x"),
		"":            filepath.Join(l.d.people.JobsDir, "ID", "1.log"),
	} {
		spec := sh("echo text", "gpus", "0", "name", "a/b")
		if pattern != "" {
			spec.Set("output", pattern)
		}
		id := l.one(spec)
		j := l.end(id)
		if want = strings.ReplaceAll(want, "ID", id); value(j.Log) != want {
			t.Errorf("%q went to %s, want %s", pattern, value(j.Log), want)
		}
		if text, err := os.ReadFile(want); want != "/dev/null" && (err != nil || string(text) != "text\n") {
			t.Errorf("%q: %q, %v", pattern, text, err)
		}
	}
}

func TestInteractiveTime(t *testing.T) {
	t.Parallel()
	l := newLab(t, with(func(c *config.Config) { c.InteractiveTime = 90e9 }))
	ann := api.Caller{UID: os.Getuid(), Name: "ann"} // who may not lift limits
	request := api.SubmitRequest{Interactive: true, Jobs: []api.Spec{
		sh("a", "hold", "yes"), sh("b", "hold", "yes", "timeout", "1h"), sh("c", "hold", "yes", "timeout", "30"),
	}}
	reply, err := l.d.submits.Submit(l.ctx, ann, request)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{90, 90, 30} {
		if j := l.job(reply.Jobs[i].ID); j.TimeLimitS != want {
			t.Errorf("job %d may take %v s, want %v", i, j.TimeLimitS, want)
		}
		if said := slices.Contains(reply.Jobs[i].Notes, "interactive jobs are limited to 1m30s here"); said != (want == 90) {
			t.Errorf("notes on job %d: %v", i, reply.Jobs[i].Notes)
		}
	}
	request.Interactive = false
	if reply, err = l.d.submits.Submit(l.ctx, ann, request); err != nil || l.job(reply.Jobs[0].ID).TimeLimitS != 0 {
		t.Errorf("one that nobody waits at is limited, %v", err)
	}
}

func TestTheUmaskIsTheCallers(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, mask := range []int{0o077, 0o002, 0o027} {
		out := filepath.Join(l.dir(), fmt.Sprintf("made-%o", mask))
		reply, err := api.Call(l.ctx, l.Client, api.Submit, api.SubmitRequest{Jobs: []api.Spec{sh("umask; : >"+out, "gpus", "0", "output", out+".log")}, Umask: &mask})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := l.finished(reply.Jobs[0].ID), fmt.Sprintf("%04o\n", mask); got != want {
			t.Errorf("the job's umask is %q, want %q", got, want)
		}
		for path, mode := range map[string]int{out: 0o666, out + ".log": 0o644} {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := info.Mode().Perm(), os.FileMode(mode&^mask); got != want {
				t.Errorf("%s has the mode %o, want %o", path, got, want)
			}
		}
	}
	before := l.finished(l.one(sh("umask", "gpus", "0")))
	if before == "0027\n" {
		t.Error("the supervisor kept the umask of the job before")
	}
}
