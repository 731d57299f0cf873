package launch

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth/internal/job"
	"berth/internal/machine/keep"
)

func launcher() *Launcher {
	return &Launcher{JobsDir: "/logs/jobs", Dir: "/home/ann/project", Home: "/home/ann", Env: []string{"PATH=/usr/bin:/bin", "HOME=/home/ann"}, SelfDir: "/opt/berth"}
}

func onCards(j *job.Job, cards ...int) *job.Job {
	j.Grant.GPUs = cards
	for range cards {
		j.Grant.UUIDs = append(j.Grant.UUIDs, "GPU-x")
	}
	return j
}

func environment(l *Launcher, j *job.Job) map[string]string {
	env := map[string]string{}
	for _, pair := range mustOrder(l, j).Env {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	return env
}

func TestEnvironmentOfAJob(t *testing.T) {
	j := onCards(&job.Job{ID: "7", Attempt: job.Attempt{Keep: "tok", Number: 2}, VRAMMiB: 8000, Spec: spec(func(s *job.Spec) { s.Name = "train" })}, 3, 1)
	want := map[string]string{
		"PATH": "/usr/bin:/bin:/opt/berth", "HOME": "/home/ann", "PYTHONUNBUFFERED": "1",
		"CUDA_VISIBLE_DEVICES": "3,1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
		"NVIDIA_VISIBLE_DEVICES": "3,1", "APPTAINERENV_NVIDIA_VISIBLE_DEVICES": "3,1", "APPTAINERENV_CUDA_VISIBLE_DEVICES": "3,1",
		"BERTH_GPUS": "3,1", "BERTH_JOB_ID": "7", "BERTH_JOB_NAME": "train", "BERTH_GPU_UUIDS": "GPU-x,GPU-x",
		"BERTH_ATTEMPT": "2", "BERTH_VRAM_MIB": "8000", "BERTH_SUBMIT_DIR": "/home/ann/project",
	}
	if diff := cmp.Diff(want, environment(launcher(), j)); diff != "" {
		t.Error(diff)
	}
}

func TestEnvironmentRules(t *testing.T) {
	set := func(pairs ...string) func(*job.Spec) {
		return func(s *job.Spec) {
			for i := 0; i < len(pairs); i += 2 {
				s.Env = append(s.Env, job.EnvVar{Key: pairs[i], Value: pairs[i+1]})
			}
		}
	}
	tests := []struct {
		name  string
		setup func(*Launcher, *job.Job)
		want  map[string]string // "-": not there
	}{
		{
			name: "a job cannot give itself other cards",
			setup: func(l *Launcher, j *job.Job) {
				j.Spec = spec(set("CUDA_VISIBLE_DEVICES", "0,1,2,3", "CUDA_DEVICE_ORDER", "FASTEST_FIRST", "NVIDIA_VISIBLE_DEVICES", "all", "BERTH_GPUS", "9"))
			},
			want: map[string]string{"CUDA_VISIBLE_DEVICES": "2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "NVIDIA_VISIBLE_DEVICES": "2", "BERTH_GPUS": "2"},
		},
		{
			name: "nor does it inherit them",
			setup: func(l *Launcher, _ *job.Job) {
				l.Env = append(l.Env, "CUDA_VISIBLE_DEVICES=0,1", "NVIDIA_VISIBLE_DEVICES=all", "BERTH_VRAM_MIB=1", "BERTH_ARRAY_INDEX=4", "BERTH_SIM_GPU=1", "BERTH_SNAPSHOT=/outer")
			},
			want: map[string]string{"CUDA_VISIBLE_DEVICES": "2", "NVIDIA_VISIBLE_DEVICES": "2", "BERTH_VRAM_MIB": "-", "BERTH_ARRAY_INDEX": "-", "BERTH_SIM_GPU": "-", "BERTH_SNAPSHOT": "-"},
		},
		{
			name:  "a CPU job sees no card",
			setup: func(_ *Launcher, j *job.Job) { j.Grant = job.Grant{} },
			want:  map[string]string{"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void", "BERTH_GPUS": "", "BERTH_GPU_UUIDS": ""},
		},
		{
			name: "its own variables win over what it inherits, the last one of a name counts",
			setup: func(l *Launcher, j *job.Job) {
				l.Env = append(l.Env, "A=inherited")
				j.Spec = spec(set("A", "1", "A", "2"))
			},
			want: map[string]string{"A": "2"},
		},
		{
			name:  "output buffering is off unless the job wants it on",
			setup: func(_ *Launcher, j *job.Job) { j.Spec = spec(set("PYTHONUNBUFFERED", "")) },
			want:  map[string]string{"PYTHONUNBUFFERED": ""},
		},
		{
			name:  "berth's directory goes to the end of the job's own PATH",
			setup: func(_ *Launcher, j *job.Job) { j.Spec = spec(set("PATH", "/my/bin")) },
			want:  map[string]string{"PATH": "/my/bin:/opt/berth"},
		},
		{
			name:  "but not a second time",
			setup: func(l *Launcher, _ *job.Job) { l.Env = []string{"PATH=/opt/berth:/bin"} },
			want:  map[string]string{"PATH": "/opt/berth:/bin"},
		},
		{
			name:  "without a PATH there is an ordinary one",
			setup: func(l *Launcher, _ *job.Job) { l.Env = nil },
			want:  map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin:/opt/berth"},
		},
		{
			name:  "the simulation directory is named",
			setup: func(l *Launcher, _ *job.Job) { l.SimDir = "/sim" },
			want:  map[string]string{"BERTH_SIM_DIR": "/sim"},
		},
		{
			name:  "a task of an array knows its index",
			setup: func(_ *Launcher, j *job.Job) { j.ID = "7_12" },
			want:  map[string]string{"BERTH_ARRAY_INDEX": "12", "BERTH_JOB_ID": "7_12", "BERTH_JOB_NAME": "job7_12"},
		},
		{
			name: "cap=soft asks frameworks to stay within the budget",
			setup: func(_ *Launcher, j *job.Job) {
				j.Spec.Cap, j.Grant.BudgetMiB, j.Grant.CardMiB = "soft", 6144, 24576
			},
			want: map[string]string{"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.250", "TF_FORCE_GPU_ALLOW_GROWTH": "true", "BERTH_GPU_MEMORY_UTILIZATION": "0.250", "BERTH_TORCH_MEMORY_FRACTION": "0.250"},
		},
		{
			name: "what the job brings along is its own business",
			setup: func(l *Launcher, j *job.Job) {
				j.Spec = spec(set("XLA_PYTHON_CLIENT_MEM_FRACTION", ".9"))
				l.Env = append(l.Env, "TF_FORCE_GPU_ALLOW_GROWTH=false")
				j.Spec.Cap, j.Grant.BudgetMiB, j.Grant.CardMiB = "soft", 6144, 24576
			},
			want: map[string]string{"XLA_PYTHON_CLIENT_MEM_FRACTION": ".9", "TF_FORCE_GPU_ALLOW_GROWTH": "false", "BERTH_GPU_MEMORY_UTILIZATION": "0.250"},
		},
		{
			name: "an outer job's part is not handed on",
			setup: func(l *Launcher, _ *job.Job) {
				l.Env = append(l.Env, "BERTH_TORCH_MEMORY_FRACTION=0.1", "BERTH_GPU_MEMORY_UTILIZATION=0.1")
			},
			want: map[string]string{"BERTH_TORCH_MEMORY_FRACTION": "-", "BERTH_GPU_MEMORY_UTILIZATION": "-"},
		},
		{
			name:  "no cap, no fraction",
			setup: func(_ *Launcher, j *job.Job) { j.Grant.BudgetMiB, j.Grant.CardMiB = 6144, 24576 },
			want:  map[string]string{"XLA_PYTHON_CLIENT_MEM_FRACTION": "-", "TF_FORCE_GPU_ALLOW_GROWTH": "-"},
		},
		{
			name:  "a job that has the whole card is not capped",
			setup: func(_ *Launcher, j *job.Job) { j.Spec.Cap, j.Grant.CardMiB = "soft", 24576 },
			want:  map[string]string{"XLA_PYTHON_CLIENT_MEM_FRACTION": "-"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l, j := launcher(), onCards(&job.Job{ID: "7", Attempt: job.Attempt{Keep: "tok", Number: 1}, Spec: spec()}, 2)
			test.setup(l, j)
			got := environment(l, j)
			for _, name := range slices.Sorted(maps.Keys(test.want)) {
				value, there := got[name]
				if !there {
					value = "-"
				}
				if value != test.want[name] {
					t.Errorf("%s=%q, want %q", name, value, test.want[name])
				}
			}
		})
	}
}

func TestEnvironmentNamesNothingTwice(t *testing.T) {
	l := launcher()
	l.Env = []string{"A=1", "PATH=/bin", "A=2", "CUDA_VISIBLE_DEVICES=5", "noequals", "=odd"}
	seen := map[string]bool{}
	for _, pair := range mustOrder(l, onCards(&job.Job{ID: "1", Spec: spec()}, 0)).Env {
		name, _, ok := strings.Cut(pair, "=")
		if !ok || name == "" || seen[name] {
			t.Errorf("%q is malformed or there twice", pair)
		}
		seen[name] = true
	}
}

func TestLogPath(t *testing.T) {
	tests := []struct {
		name string
		job  job.Job
		want string
	}{
		{"by default each attempt has its own file", job.Job{ID: "7", Attempt: job.Attempt{Number: 2}}, "/logs/jobs/7/2.log"},
		{"a pattern is filled in", job.Job{ID: "7", User: "ann", Attempt: job.Attempt{Number: 1}, Spec: job.Spec{Name: "train", Output: "/out/%u/%j-%n.log"}}, "/out/ann/7-train.log"},
		{"a name cannot lead elsewhere", job.Job{ID: "7", Attempt: job.Attempt{Number: 1}, Spec: job.Spec{Name: "../../etc/x", Output: "/out/%n"}}, "/out/.._.._etc_x"},
		{"a job without a name has one", job.Job{ID: "7", Attempt: job.Attempt{Number: 1}, Spec: job.Spec{Output: "/out/%n"}}, "/out/job7"},
		{"two percent signs are one", job.Job{ID: "7", Attempt: job.Attempt{Number: 1}, Spec: job.Spec{Output: "/out/100%%j"}}, "/out/100%j"},
		{"a later attempt does not write over the first", job.Job{ID: "7", Attempt: job.Attempt{Number: 3}, Spec: job.Spec{Output: "/out/x.log"}}, "/out/x.log.3"},
		{"unless it appends to it", job.Job{ID: "7", Attempt: job.Attempt{Number: 3}, Spec: job.Spec{Output: "/out/%N/x.log%+"}}, "/out/lab1/x.log"},
		{"the index of an array", job.Job{ID: "17_4", Attempt: job.Attempt{Number: 1}, Spec: job.Spec{Output: "/out/%a"}}, "/out/4"},
		{"relative to the job's directory", job.Job{ID: "7", Attempt: job.Attempt{Number: 1}, Spec: job.Spec{Dir: "/data", Output: "x.log"}}, "/data/x.log"},
		{"which may be relative to the caller's", job.Job{ID: "7", Attempt: job.Attempt{Number: 1}, Spec: job.Spec{Dir: "sub", Output: "x.log"}}, "/home/ann/project/sub/x.log"},
		{"or start at home", job.Job{ID: "7", Attempt: job.Attempt{Number: 1}, Spec: job.Spec{Dir: "~/data", Output: "x.log"}}, "/home/ann/data/x.log"},
		{"as may the pattern itself", job.Job{ID: "7", Attempt: job.Attempt{Number: 2}, Spec: job.Spec{Output: "~/x-%j.log"}}, "/home/ann/x-7.log.2"},
		{"a tilde within a word is a tilde", job.Job{ID: "7", Attempt: job.Attempt{Number: 1}, Spec: job.Spec{Output: "/out/~x"}}, "/out/~x"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l := launcher()
			l.Host = "lab1"
			if got := l.LogPath(&test.job); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

func TestOrderCarriesWhatTheSupervisorNeeds(t *testing.T) {
	s := spec(func(s *job.Spec) {
		s.TimeLimit, s.Grace, s.WarnBefore, s.WarnSignal, s.Dir = time.Hour, 3*time.Second, time.Minute, "USR1", "~"
	})
	o := mustOrder(launcher(), onCards(&job.Job{ID: "7", Attempt: job.Attempt{Number: 2, Log: "/l"}, Spec: s}, 0))
	if o.Job != "7" || o.Attempt != 2 || o.Log != "/l" || o.Dir != "/home/ann" {
		t.Errorf("%+v", o)
	}
	if o.Limit != time.Hour || o.Grace != 3*time.Second || o.WarnBefore != time.Minute || o.WarnSignal != 10 {
		t.Errorf("limit %s, grace %s, signal %d %s before", o.Limit, o.Grace, o.WarnSignal, o.WarnBefore)
	}
	if err := o.Check(); err != nil {
		t.Error(err)
	}
	if !slices.Contains(o.Argv, "python train.py") {
		t.Errorf("argv %q", o.Argv)
	}
}

func TestACheckpointFileIsLookedForWhereTheJobRuns(t *testing.T) {
	t.Parallel()
	for says, want := range map[string]string{
		"":                                "",
		"ckpt.pt":                         "/home/ann/run/ckpt.pt",
		"/scratch/ckpt":                   "/scratch/ckpt",
		"~/ckpt":                          "/home/ann/ckpt",
		"ckpt-$BERTH_JOB_ID.pt":           "/home/ann/run/ckpt-7.pt",
		"$BERTH_CHECKPOINT_DIR":           "/home/ann/run/checkpoints/7--62135596800",
		"$BERTH_CHECKPOINT_DIR/last.ckpt": "/home/ann/run/checkpoints/7--62135596800/last.ckpt",
		"${BERTH_CHECKPOINT_DIR}/last":    "/home/ann/run/checkpoints/7--62135596800/last",
	} {
		s := spec(func(s *job.Spec) { s.Checkpoint, s.SavesTo, s.Dir = job.CheckpointTold, says, "~/run" })
		if o := mustOrder(launcher(), onCards(&job.Job{ID: "7", Spec: s}, 0)); o.SavesTo != want {
			t.Errorf("%s: %q, want %q", says, o.SavesTo, want)
		}
	}
	s := spec(func(s *job.Spec) {
		s.Checkpoint, s.SavesTo, s.Env = job.CheckpointTold, "$BERTH_CHECKPOINT_DIR/a", []job.EnvVar{{Key: checkpointDir, Value: "/scratch/run1"}}
	})
	if o := mustOrder(launcher(), onCards(&job.Job{ID: "7", Spec: s}, 0)); o.SavesTo != "/scratch/run1/a" {
		t.Errorf("its own directory: %q", o.SavesTo)
	}
}

func mustOrder(l *Launcher, j *job.Job) keep.Order {
	o, err := l.Order(j, l.card)
	if err != nil {
		panic(err)
	}
	return o
}

// TestASnapshotIsWhereAJobRuns: in the same place inside the copy. What is outside
// the tree, and the log, stay where they are.
func TestASnapshotIsWhereAJobRuns(t *testing.T) {
	code := job.Snapshot{Tree: "/home/ann/project", ID: "1", Path: "/state/1/project"}
	for _, row := range []struct {
		says, dir, script string
		want, runs        string
	}{
		{"the tree itself", "", "", "/state/1/project", "/home/ann/project/train.sh"},
		{"a directory in it", "~/project/src", "", "/state/1/project/src", "/home/ann/project/train.sh"},
		{"one beside it with a longer name", "/home/ann/project2", "", "/home/ann/project2", "/home/ann/project/train.sh"},
		{"the submitted script", "", "/home/ann/project/train.sh", "/state/1/project", "/state/1/project/train.sh"},
	} {
		j := onCards(&job.Job{ID: "7", Spec: spec(func(s *job.Spec) {
			s.Shell, s.Argv, s.Dir, s.Output = "", []string{"sh", "/home/ann/project/train.sh"}, row.dir, "out.log"
			s.Snapshot = code
			s.Snapshot.Script = row.script
		})}, 0)
		l := launcher()
		o, env := mustOrder(l, j), environment(l, j)
		if o.Dir != row.want || o.Code != code.Path || o.Argv[1] != row.runs || env["PWD"] != row.want || env["BERTH_SNAPSHOT"] != code.Path {
			t.Errorf("%s: %s in %s, with %v", row.says, o.Argv, o.Dir, env)
		}
		if log := l.LogPath(j); log != l.dir(j)+"/out.log" || env["BERTH_SUBMIT_DIR"] != l.dir(j) {
			t.Errorf("%s: its log is %s, and it writes to %s", row.says, log, env["BERTH_SUBMIT_DIR"])
		}
		if j.Spec.Argv[1] != "/home/ann/project/train.sh" {
			t.Errorf("%s: the spec changed: %v", row.says, j.Spec.Argv)
		}
	}
}

func spec(change ...func(*job.Spec)) job.Spec {
	s := job.Defaults()
	s.Shell = "python train.py"
	for _, f := range change {
		f(&s)
	}
	return s
}
