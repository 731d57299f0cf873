package slurm

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/text/problem"
)

// lab has types without features, and shards.
var lab = Cluster{Shards: 4, Kinds: []Kind{{Type: "v100", MiB: 16 << 10}, {Type: "a100", MiB: 40 << 10}, {Type: "a100_80", MiB: 80 << 10}}}

// centre has untyped GPUs that node features tell apart.
var centre = Cluster{Shards: 4, Kinds: []Kind{{MiB: 16 << 10, Feature: "volta"}, {MiB: 40 << 10, Feature: "ampere"}, {MiB: 80 << 10, Feature: "hopper"}}}

const (
	atHome = "berth does it itself, where the job was submitted"
	onNode = "berth __node does it, on the node"
	batch  = "it is part of the batch, see Arguments"
	never  = "it concerns parking, which never happens to a job in Slurm"
)

// row is one way to set a field. Exactly one of options, refused and elsewhere is
// set.
type row struct {
	field     string // of job.Spec
	set       func(*job.Spec)
	cluster   Cluster
	options   string
	refused   string // part of the problem
	elsewhere string // who does it; sbatch gets nothing
}

// golden has every field of a spec. Each row begins with a job without GPUs.
var golden = []row{
	{field: "Shell", set: func(s *job.Spec) { s.Shell = "true" }, elsewhere: onNode},
	{field: "Argv", set: func(s *job.Spec) { s.Argv = []string{"true"} }, elsewhere: onNode},
	{field: "Name", set: func(s *job.Spec) { s.Name = "train" }, elsewhere: batch},
	{field: "GPUs", set: func(s *job.Spec) { s.GPUs = 2 }, options: "--gres=gpu:2"},
	{field: "GPUs", set: func(s *job.Spec) { s.GPUs = 2 }, cluster: lab, options: "--gres=gpu:2"},
	{field: "Share", set: func(s *job.Spec) { s.GPUs, s.Share = 1, 0.5 }, cluster: lab, options: "--gres=shard:2"},
	{field: "Share", set: func(s *job.Spec) { s.GPUs, s.Share = 1, 0.3 }, cluster: lab, options: "--gres=shard:2"},
	{field: "Share", set: func(s *job.Spec) { s.GPUs, s.Share = 1, 0.01 }, cluster: lab, options: "--gres=shard:1"},
	{field: "Share", set: func(s *job.Spec) { s.GPUs, s.Share = 1, 0.999 }, cluster: lab, options: "--gres=shard:4"},
	{field: "Share", set: func(s *job.Spec) { s.GPUs, s.Share = 1, 0.5 }, refused: "job asks for 0.5 of a GPU, which Slurm gives in shards; slurm.shards in the config is 0"},
	{field: "Share", set: func(s *job.Spec) { s.GPUs, s.Share, s.VRAMMiB = 1, 0.25, 30<<10 }, cluster: centre, options: "--gres=shard:3 --constraint=ampere|hopper"},
	{field: "Share", set: func(s *job.Spec) { s.GPUs, s.Share, s.Type = 1, 0.25, "a100" }, cluster: lab, refused: "Slurm cannot choose the type of a GPU that is shared: the job accepts only a100, a100_80"},
	{field: "Type", set: func(s *job.Spec) { s.GPUs, s.Type = 1, "h100" }, options: "--gres=gpu:h100:1"},
	{field: "Type", set: func(s *job.Spec) { s.GPUs, s.Type = 4, "V100" }, cluster: lab, options: "--gres=gpu:v100:4"},
	{field: "Type", set: func(s *job.Spec) { s.GPUs, s.Type = 1, "A100" }, cluster: lab, options: "--gres=gpu:a100:1"},
	{field: "Type", set: func(s *job.Spec) { s.GPUs, s.Type = 1, "A100-80" }, cluster: lab, options: "--gres=gpu:a100_80:1"},
	{field: "Type", set: func(s *job.Spec) { s.GPUs, s.Type = 1, "hopper" }, cluster: centre, options: "--gres=gpu:1 --constraint=hopper"},
	{field: "Type", set: func(s *job.Spec) { s.GPUs, s.Type = 1, "h100" }, cluster: lab, refused: `the cluster has no GPU of type "h100"`},
	{field: "Type", set: func(s *job.Spec) { s.GPUs, s.Type = 1, "h100:8,gpu" }, refused: "--gpu-type: expected a GPU type of the cluster"},
	{field: "Type", set: func(s *job.Spec) { s.GPUs, s.Type = 1, "-h100" }, refused: "--gpu-type: expected a GPU type of the cluster"},
	{field: "VRAMMiB", set: func(s *job.Spec) { s.GPUs, s.VRAMMiB = 1, 18<<10 }, options: "--gres=gpu:1"},
	{field: "VRAMMiB", set: func(s *job.Spec) { s.GPUs, s.VRAMMiB = 1, 10<<10 }, cluster: lab, options: "--gres=gpu:1"},
	{field: "VRAMMiB", set: func(s *job.Spec) { s.GPUs, s.VRAMMiB = 1, 18<<10 }, cluster: lab, options: "--gres=gpu:a100:1"},
	{field: "VRAMMiB", set: func(s *job.Spec) { s.GPUs, s.VRAMMiB = 2, 41<<10 }, cluster: lab, options: "--gres=gpu:a100_80:2"},
	{field: "VRAMMiB", set: func(s *job.Spec) { s.GPUs, s.VRAMMiB = 1, 18<<10 }, cluster: centre, options: "--gres=gpu:1 --constraint=ampere|hopper"},
	{field: "VRAMMiB", set: func(s *job.Spec) { s.GPUs, s.VRAMMiB = 1, 96<<10 }, cluster: lab, refused: "job asks for 96 GiB on each GPU; the largest GPU it accepts in the cluster, a100_80, has 80 GiB"},
	{field: "VRAMAuto", set: func(s *job.Spec) { s.GPUs, s.VRAMAuto = 1, true }, cluster: lab, options: "--gres=gpu:1"},
	{field: "Env", set: func(s *job.Spec) { s.Env = []job.EnvVar{{Key: "SLURM_NTASKS", Value: "4"}} }, refused: "several tasks are not possible"},
	{field: "IDs", set: func(s *job.Spec) { s.GPUs, s.IDs = 1, []int{3} }, refused: "--gpu-ids is not possible"},
	{field: "Allow", set: func(s *job.Spec) { s.GPUs, s.Allow = 1, []int{3} }, refused: "--allow is not possible"},
	{field: "Exclusive", set: func(s *job.Spec) { s.GPUs, s.Exclusive = 1, true }, options: "--gres=gpu:1"}, // Slurm shares no whole GPU
	{field: "Exclusive", set: func(s *job.Spec) { s.GPUs, s.Share, s.Exclusive = 1, 0.5, true }, cluster: lab, refused: "--exclusive is not possible"},
	{field: "CPUs", set: func(s *job.Spec) { s.CPUs = 8 }, options: "--cpus-per-task=8"},
	{field: "MemMiB", set: func(s *job.Spec) { s.MemMiB = 32 << 10 }, options: "--mem=32768M"},
	{field: "Pin", set: func(s *job.Spec) { s.GPUs, s.Pin = 1, true }, options: "--gres=gpu:1 --gres-flags=enforce-binding"},
	{field: "Inject", set: func(s *job.Spec) { s.Inject = "--gpus=local" }, elsewhere: onNode},
	{field: "Adopt", set: func(s *job.Spec) { s.Adopt = &job.Process{PID: 7} }, refused: "a process that runs already"},
	{field: "Priority", set: func(s *job.Spec) { s.Priority = -3 }, options: "--nice=300"},
	{field: "Priority", set: func(s *job.Spec) { s.Priority = -1 << 31 }, options: "--nice=2147483645"},
	{field: "Priority", set: func(s *job.Spec) { s.Priority = 5 }, elsewhere: atHome},
	{field: "Interactive", set: func(s *job.Spec) { s.Interactive = true }, elsewhere: onNode},
	{field: "TimeLimit", set: func(s *job.Spec) { s.TimeLimit = 6 * time.Hour }, options: "--time=360"},
	{field: "TimeLimit", set: func(s *job.Spec) { s.TimeLimit = 61 * time.Second }, options: "--time=2"},
	{field: "TimeLimit", set: func(s *job.Spec) { s.TimeLimit = time.Nanosecond }, options: "--time=1"},
	{field: "WarnSignal", set: func(s *job.Spec) { s.WarnSignal = "USR1" }, elsewhere: onNode},
	{field: "WarnBefore", set: func(s *job.Spec) { s.WarnBefore = time.Minute }, elsewhere: onNode},
	{field: "OnTimeout", set: func(s *job.Spec) { s.OnTimeout = job.TimeoutRequeue }, elsewhere: atHome},
	{field: "OnTimeout", set: func(s *job.Spec) { s.OnTimeout = job.TimeoutPark }, refused: "--on-timeout park is not possible"},
	{field: "MaxRequeues", set: func(s *job.Spec) { s.MaxRequeues = 3 }, elsewhere: atHome},
	{field: "Retries", set: func(s *job.Spec) { s.Retries = 3 }, elsewhere: atHome},
	{field: "RetryOn", set: func(s *job.Spec) { s.RetryOn = job.RetryFail }, elsewhere: atHome},
	{field: "After", set: func(s *job.Spec) { s.After = []job.Dependency{{Job: "7", On: job.AfterOK}} }, elsewhere: atHome},
	{field: "Grace", set: func(s *job.Spec) { s.Grace = time.Minute }, elsewhere: onNode},
	{field: "Requeue", set: func(s *job.Spec) { s.Requeue = true }, options: "--requeue"},
	{field: "Preemptible", set: func(s *job.Spec) { s.Preemptible = job.PreemptByRequeue }, elsewhere: atHome},
	{field: "Preemptible", set: func(s *job.Spec) { s.Preemptible = job.PreemptByEither }, elsewhere: atHome},
	{field: "Preemptible", set: func(s *job.Spec) { s.Preemptible = job.PreemptByPark }, refused: "--preemptible=park is not possible"},
	{field: "Cap", set: func(s *job.Spec) { s.Cap = "none" }, elsewhere: onNode},
	{field: "Cap", set: func(s *job.Spec) { s.GPUs, s.Cap = 1, "soft" }, refused: "--cap is not possible"},
	{field: "Cap", set: func(s *job.Spec) { s.GPUs, s.Cap = 1, "mps" }, refused: "--cap is not possible"},
	{field: "Dir", set: func(s *job.Spec) { s.Dir = "/home/ann" }, elsewhere: onNode},
	{field: "Env", set: func(s *job.Spec) { s.Env = []job.EnvVar{{Key: "A", Value: "b"}} }, elsewhere: onNode},
	{field: "Venv", set: func(s *job.Spec) { s.Venv = "/venv" }, elsewhere: onNode},
	{field: "Conda", set: func(s *job.Spec) { s.Conda = "ml" }, elsewhere: onNode},
	{field: "Setup", set: func(s *job.Spec) { s.Setup = "true" }, elsewhere: onNode},
	{field: "Output", set: func(s *job.Spec) { s.Output = "/home/ann/%j" }, elsewhere: onNode},
	{field: "Pty", set: func(s *job.Spec) { s.Pty = true }, elsewhere: onNode},
	{field: "Export", set: func(s *job.Spec) { s.Export = "none" }, elsewhere: atHome},
	{field: "ArrayLimit", set: func(s *job.Spec) { s.ArrayLimit = 4 }, elsewhere: batch},
	{field: "Group", set: func(s *job.Spec) { s.Group = "sweep" }, refused: "--group is not possible"},
	{field: "Snapshot", set: func(s *job.Spec) { s.Snapshot.Tree = "auto" }, elsewhere: atHome},
	{field: "Notify", set: func(s *job.Spec) { s.Notify = []string{"none"} }, elsewhere: atHome},
	{field: "NoPark", set: func(s *job.Spec) { s.NoPark = true }, elsewhere: never},
	{field: "Checkpoint", set: func(s *job.Spec) { s.Checkpoint = job.CheckpointTold }, elsewhere: atHome},
	{field: "SavesTo", set: func(s *job.Spec) { s.Checkpoint, s.SavesTo = job.CheckpointTold, "ckpt.pt" }, elsewhere: atHome},
	{field: "ParkTimeout", set: func(s *job.Spec) { s.ParkTimeout = time.Minute }, elsewhere: never},
	{field: "SlurmEnv", set: func(s *job.Spec) { s.SlurmEnv = true }, elsewhere: onNode},
	{field: "ArrayShape", set: func(s *job.Spec) { s.ArrayShape.Tasks = 4 }, elsewhere: onNode},
	{field: "Trial", set: func(s *job.Spec) { s.Trial.Sweep = "lr{lr}" }, elsewhere: atHome},
	{field: "VRAMModel", set: func(s *job.Spec) { s.VRAMModel = "llama" }, elsewhere: atHome},
	{field: "Batch", set: func(s *job.Spec) { s.Batch = "jobs.txt" }, elsewhere: atHome},
	{field: "To", set: func(s *job.Spec) { s.To = job.ToSlurm }, elsewhere: atHome},
	{field: "Slurm", set: func(s *job.Spec) { s.Slurm = "--account=lab -q long" }, options: "--account=lab --qos=long"},
	{field: "Slurm", set: func(s *job.Spec) { s.Slurm = "-p gpu" }, cluster: Cluster{Options: []string{"--partition=all", "--account=lab"}}, options: "--account=lab --partition=gpu"},
	{field: "Slurm", set: func(s *job.Spec) { s.GPUs, s.Slurm = 1, "--gres=lustre:1" }, options: "--gres=gpu:1,lustre:1"},
	{field: "Slurm", set: func(s *job.Spec) { s.GPUs, s.Type, s.Slurm = 1, "hopper", "-C ib" }, cluster: centre, options: "--gres=gpu:1 --constraint=ib&hopper"},
	{field: "Slurm", set: func(s *job.Spec) { s.GPUs, s.VRAMMiB, s.Slurm = 1, 18<<10, "-C ib" }, cluster: centre, refused: "cannot be combined with --constraint=ib"},
	{field: "Slurm", set: func(s *job.Spec) { s.Slurm = "--array=0-9" }, refused: "--slurm: berth sets --array itself"},
	{field: "CancelMarked", set: func(s *job.Spec) { s.CancelMarked = true }, elsewhere: atHome},
}

func TestGoldenOptions(t *testing.T) {
	for _, row := range golden {
		spec := job.Defaults()
		spec.GPUs = 0
		row.set(&spec)
		options, err := Translate(&spec, spec.VRAMMiB, row.cluster)
		joined := strings.Join(options, " ")
		switch {
		case row.refused != "":
			p, isProblem := errors.AsType[*problem.Problem](err)
			if err == nil || !strings.Contains(err.Error(), row.refused) {
				t.Errorf("%s: %q, %v; want a refusal with %q", row.field, joined, err, row.refused)
			} else if !isProblem || p.Hint == "" {
				t.Errorf("%s: %v: no alternative", row.field, err)
			}
		case err != nil:
			t.Errorf("%s: %v", row.field, err)
		case joined != row.options:
			t.Errorf("%s:\n got %s\nwant %s", row.field, joined, row.options)
		}
	}
}

// TestEveryFieldHasARow: a field that Slurm cannot express is refused, not
// dropped, so a new field of a spec needs a decision here.
func TestEveryFieldHasARow(t *testing.T) {
	for field := range reflect.TypeFor[job.Spec]().Fields() {
		if !slices.ContainsFunc(golden, func(r row) bool { return r.field == field.Name }) {
			t.Errorf("job.Spec.%s: say in golden which option it becomes, why it is refused, or who does it", field.Name)
		}
	}
	for _, row := range golden {
		changed := job.Defaults()
		changed.GPUs = 0
		before := changed
		row.set(&changed)
		field := func(s job.Spec) any { return reflect.ValueOf(s).FieldByName(row.field).Interface() }
		if reflect.DeepEqual(field(before), field(changed)) {
			t.Errorf("%s: the row does not set it", row.field)
		}
		if said := []string{row.options, row.refused, row.elsewhere}; len(slices.DeleteFunc(said, func(s string) bool { return s == "" })) != 1 {
			t.Errorf("%s: want one of options, refused and elsewhere", row.field)
		}
	}
}

func TestRetryRaisesMemory(t *testing.T) {
	spec := job.Spec{GPUs: 1, VRAMMiB: 10 << 10}
	options, err := Translate(&spec, 60<<10, lab)
	if err != nil || strings.Join(options, " ") != "--gres=gpu:a100_80:1" {
		t.Errorf("%v %v", options, err)
	}
}

func TestHigherPriorityIsNoted(t *testing.T) {
	if notes := Notes(&job.Spec{Priority: 1}); len(notes) != 1 {
		t.Errorf("%q", notes)
	}
	if notes := Notes(&job.Spec{Priority: -1}); len(notes) != 0 {
		t.Errorf("%q", notes)
	}
}
