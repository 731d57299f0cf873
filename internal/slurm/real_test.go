package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// newCluster starts a real Slurm with the types of lab and the features of centre.
func newCluster(t *testing.T, accounts bool) *testkit.Slurm {
	t.Helper()
	s := testkit.NewSlurm(t, testkit.SlurmSetup{Nodes: 2, GPUs: 6, CPUs: 8, Shards: 4, Types: []string{"v100", "a100", "a100_80"}, Accounts: accounts, Conf: []string{"Licenses=lustre:4"}})
	s.Must(t, "scontrol", "update", "NodeName=n1", "AvailableFeatures=volta,ib,ampere,hopper")
	return s
}

// TestRealSlurmTakesTheGoldenOptions: sbatch accepts every line that berth makes.
func TestRealSlurmTakesTheGoldenOptions(t *testing.T) {
	s := newCluster(t, false)
	script := filepath.Join(s.Dir, "script")
	testkit.Write(t, script, string(Script("/no/berth", s.Dir)), 0o755)
	for _, row := range golden {
		if row.refused != "" {
			continue
		}
		spec := job.Defaults()
		spec.GPUs = 0
		row.set(&spec)
		// What sites name differently is not part of this Slurm.
		spec.MemMiB = min(spec.MemMiB, 4<<10)
		spec.Slurm = strings.NewReplacer("--account=lab -q long", "--contiguous", "--gres=lustre:1", "-L lustre:1", "-p gpu", "-p all").Replace(spec.Slurm)
		if spec.Type == "h100" {
			spec.Type = "v100"
		}
		spec.GPUs = min(spec.GPUs, 2)
		cluster := row.cluster
		cluster.Options = nil
		options, err := Translate(&spec, spec.VRAMMiB, cluster)
		if err != nil {
			t.Errorf("%s: %v", row.field, err)
			continue
		}
		arguments := Arguments(options, Batch{Name: "train", Comment: "berth:1", Script: script, Tasks: []int{0, 1, 2}, Limit: 2, Log: filepath.Join(s.Dir, "100%.log")})
		if out, err := s.Run("sbatch", slices.Insert(arguments, 0, "--test-only")...); err != nil {
			t.Errorf("%s: %q: %v: %s", row.field, options, err, out)
		}
	}
	node := func(state string) string {
		return s.Must(t, "scontrol", "update", "NodeName=n2", "State="+state, "Reason=fan is broken")
	}
	node("DRAIN")
	nodes, err := Nodes(s.Must(t, "sinfo", NodesCommand()...))
	if err != nil || len(nodes) != 2 {
		t.Fatalf("%v: %+v", err, nodes)
	}
	if n := nodes[0]; n.Name != "n1" || n.State != "idle" || n.CPUs != 8 || n.FreeCPUs != 8 || n.MemMiB != 8000 || n.Shards != 24 || fmt.Sprint(n.GPUs) != "[{v100 2 0} {a100 2 0} {a100_80 2 0}]" || fmt.Sprint(n.Features) != "[volta ib ampere hopper]" {
		t.Errorf("%+v", n)
	}
	if n := nodes[1]; n.State != "drained" || !strings.HasPrefix(n.Reason, "fan is broken") {
		t.Errorf("%+v", n)
	}
	if ShardsPerGPU(nodes) != 4 {
		t.Errorf("%d shards", ShardsPerGPU(nodes))
	}
	if settings := Settings(s.Must(t, "scontrol", SettingsCommand()...)); settings["clustername"] != "lab" {
		t.Errorf("%q", settings)
	}
}

// TestRealSlurmRefusesAndDoesNotAnswer: what sbatch prints is told apart.
func TestRealSlurmRefusesAndDoesNotAnswer(t *testing.T) {
	s := testkit.NewSlurm(t, testkit.SlurmSetup{Conf: []string{"MessageTimeout=2"}})
	for _, args := range [][]string{{"--partition=nosuch"}, {"--gres=gpu:9"}, {"--gres=gpu:h900:1"}, {"--constraint=nosuch"}, {"--mem=9T"}} {
		out, err := s.Run("sbatch", append(args, "--wrap=true")...)
		if err == nil || Temporary(out) {
			t.Errorf("%q: %v: %s", args, err, out)
		}
	}
	if out, err := s.Run("sacct"); err == nil || Temporary(out) {
		t.Errorf("sacct without accounts: %v: %s", err, out)
	}
	s.StopController(t)
	for _, args := range [][]string{append([]string{"squeue"}, QueueCommand("root")...), {"sbatch", "--wrap=true"}, {"scancel", "1"}, append([]string{"sinfo"}, NodesCommand()...)} {
		out, err := s.Run("timeout", append([]string{"60"}, args...)...)
		if err == nil || !Temporary(out) {
			t.Errorf("%q without slurmctld: %v: %s", args, err, out)
		}
	}
}

// TestRealSlurmIsUnderstood: jobs are submitted, listed and accounted for.
func TestRealSlurmIsUnderstood(t *testing.T) {
	s := newCluster(t, true)
	program := filepath.Join(s.Dir, "program")
	testkit.Write(t, program, "#!/bin/sh\n[ \"$1\" = __node ] || exit 9\nexit \"$3\"\n", 0o755)
	script := filepath.Join(s.Dir, "the script")
	testkit.Write(t, script, string(Script(program, "/a dir")), 0o755)
	missing := filepath.Join(s.Dir, "missing")
	testkit.Write(t, missing, string(Script("/no/berth", "/a dir")), 0o755)
	log := filepath.Join(s.Dir, "100% of it.log")
	submit := func(options []string, b Batch) string {
		t.Helper()
		b.Log = log
		id, err := Submitted(s.Must(t, "sbatch", Arguments(options, b)...))
		testkit.Must(t, err)
		return id
	}
	array := submit([]string{"--gres=gpu:a100:1"}, Batch{Name: "a|b\x1fc\nd", Comment: "berth:b1", Script: script, Tasks: []int{0, 1, 2}})
	alone := submit(nil, Batch{Name: "None", Comment: "berth:b2", Script: missing})
	held := submit([]string{"--hold"}, Batch{Name: "held", Comment: "berth:b3", Script: script})
	large := submit([]string{"--gres=gpu:a100:2", "--hold"}, Batch{Name: "large", Comment: "berth:b4", Script: script, Tasks: []int{0, 1}})

	queue := func() map[string]Entry {
		entries, err := Queue(s.Must(t, "squeue", QueueCommand("root")...))
		testkit.Must(t, err)
		by := map[string]Entry{}
		for _, e := range entries {
			by[e.ID] = e
		}
		return by
	}
	testkit.Eventually(t, "the jobs have ended", func() bool {
		by := queue()
		return by[array+"_2"].State == "FAILED" && by[array+"_0"].State == "COMPLETED" && by[array+"_1"].State == "FAILED" && by[alone].State == "FAILED"
	})
	by := queue()
	if e := by[array+"_1"]; e.Comment != "berth:b1" || e.Name != "a|b_c_d" || e.Node == "" || e.Start.IsZero() || e.Submit.IsZero() || e.Partition != "all" {
		t.Errorf("%+v", e)
	}
	if e := by[held]; e.State != "PENDING" || !strings.HasPrefix(Why(e), "is held in Slurm") {
		t.Errorf("%+v: %s", e, Why(e))
	}
	if by[large+"_0"].State != "PENDING" || by[large+"_1"].State != "PENDING" {
		t.Errorf("%+v", by)
	}
	if raw, err := os.ReadFile(log); err != nil || !strings.Contains(string(raw), "has no program /no/berth; the job was not started") {
		t.Errorf("%v: %s", err, raw)
	}
	s.Must(t, "scancel", held, large+"_1")
	want := map[string]job.Outcome{array + "_0": job.OK, array + "_1": job.Exited(1), array + "_2": job.Exited(2), alone: job.Exited(127), held: job.WasCancelled}
	var last string
	defer func() { t.Log(last) }()
	testkit.Eventually(t, "sacct knows every end", func() bool {
		accounts, err := Accounts(s.Must(t, "sacct", AccountCommand([]string{array, alone, held, large})...))
		testkit.Must(t, err)
		known := 0
		for _, a := range accounts {
			if outcome, _ := a.Outcome(); outcome != "" && outcome == want[a.ID] && !a.End.IsZero() {
				known++
			}
		}
		last = fmt.Sprintf("%+v", accounts)
		return known == len(want)
	})
	remembered := Remembered(s.Must(t, "scontrol", RememberedCommand(array)...))
	if len(remembered) != 3 {
		t.Errorf("%+v", remembered)
	}
	for _, a := range remembered {
		if outcome, _ := a.Outcome(); outcome != want[a.ID] || a.Comment != "berth:b1" {
			t.Errorf("%+v: %s", a, outcome)
		}
	}
}
