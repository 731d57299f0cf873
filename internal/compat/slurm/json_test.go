package slurm_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/tests/testkit"
)

// Keys of --json and their types, for a running job and for a node.
const (
	typesOfJobs = `job_id number, array_job_id number, array_task_id null, array_task_string string, name string, user_name string, user_id number,
		account string, qos string, partition string, cluster string, job_state string, state_reason string, state_description string, dependency string,
		priority number, submit_time number, eligible_time number, start_time number, end_time number, suspend_time number, time_limit number,
		exit_code number, derived_exit_code number, restart_cnt number, requeue bool, nodes string, batch_host string, node_count number, tasks number,
		cpus number, tres_per_node string, gres_detail list, command string, current_working_directory string, standard_output string,
		standard_error string, standard_input string, batch_flag bool, flags list, comment string, features string`
	typesOfNodes = `name string, hostname string, address string, state string, state_flags list, partitions list, cpus number, real_memory number,
		gres string, gres_used string, reason string, weight number, temporary_disk number, features string, active_features string, comment string, slurmd_version string`
)

// read decodes one list of --json.
func (run runner) read(t *testing.T, key, program string, args ...string) (list []map[string]any) {
	t.Helper()
	out, err := run(program, append(args, "--json")...)
	testkit.Must(t, err)
	var whole map[string]json.RawMessage
	testkit.Must(t, json.Unmarshal([]byte(out), &whole))
	if whole["meta"] == nil || whole["errors"] == nil {
		t.Errorf("%s: %s", program, out)
	}
	testkit.Must(t, json.Unmarshal(whole[key], &list))
	return list
}

func typed(t *testing.T, what string, types string, of map[string]any) {
	t.Helper()
	for pair := range strings.SplitSeq(types, ",") {
		words := strings.Fields(pair)
		value, found := of[words[0]]
		got := map[string]string{"float64": "number", "string": "string", "bool": "bool", "[]interface {}": "list", "<nil>": "null"}[fmt.Sprintf("%T", value)]
		if !found || got != words[1] {
			t.Errorf("%s: %s is %s (%v), want %s", what, words[0], got, value, words[1])
		}
	}
}

// printsJSON: a running job, one that waits and an array that does, and the node.
func printsJSON(t *testing.T, run runner) {
	t.Helper()
	for _, args := range []string{"-J runs --gres=gpu:1", "-J waits -H", "-J many -H --array=1-3%2"} {
		if out, err := run("sbatch", append(strings.Fields(args), "-t", "10", "-o", "x.out", "--wrap", "sleep 600")...); err != nil {
			t.Fatalf("sbatch %s: %s, %v", args, out, err)
		}
	}
	testkit.Eventually(t, "it runs", func() bool { return run.answer(t, "squeue -h -n runs -o %t") == "R 0" })
	jobs := map[string]map[string]any{}
	for _, one := range run.read(t, "jobs", "squeue") {
		jobs[fmt.Sprint(one["name"])] = one
	}
	typed(t, "a running job", typesOfJobs, jobs["runs"])
	for name, want := range map[string]string{"runs": "RUNNING None 10 <nil>", "waits": "PENDING JobHeldUser 10 <nil>", "many": "PENDING JobHeldUser 10 <nil>"} {
		j := jobs[name]
		if got := fmt.Sprint(j["job_state"], " ", j["state_reason"], " ", j["time_limit"], " ", j["array_task_id"]); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if many := jobs["many"]; many["array_task_string"] != "1-3%2" || many["array_job_id"] != many["job_id"] {
		t.Errorf("an array: %v", many)
	}
	nodes := run.read(t, "nodes", "sinfo")
	typed(t, "a node", typesOfNodes, nodes[0])
	if nodes[0]["state"] != "mixed" {
		t.Errorf("the node is %v", nodes[0]["state"])
	}
}

func TestJSON(t *testing.T) {
	dir := t.TempDir()
	run := runner(newBerth(t, dir))
	printsJSON(t, run)
	if out := run.read(t, "jobs", "squeue", "-n", "nosuch"); len(out) != 0 {
		t.Errorf("no job: %v", out)
	}
	_, err := run("sbatch", "-W", "-J", "fails", "-p", "gpu", "--wrap", "exit 3")
	if err == nil {
		t.Error("it did not fail")
	}
	done := run.read(t, "jobs", "sacct", "--name", "fails")
	if len(done) != 1 || fmt.Sprint(done[0]["state"].(map[string]any)["current"], done[0]["exit_code"].(map[string]any)["return_code"]) != "FAILED3" {
		t.Errorf("sacct: %v", done)
	}
	if got := run.answer(t, "scontrol show job 2"); !strings.Contains(got, "StdOut=") || !strings.Contains(got, "x.out") {
		t.Errorf("a held job: %s", got)
	}
	// What is ignored is said, but not where a program reads.
	for args, want := range map[string]string{
		"--nice": "sbatch: ignored, no equivalent in berth: --nice\n", "-p gpu --parsable": "", "-Q -p gpu": "", "--cpu-freq=high --hint=x": "",
	} {
		cmd := exec.Command(filepath.Join(dir, "names", "sbatch"), append(strings.Fields(args), "-H", "--wrap", "true")...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "BERTH_SOCKET="+filepath.Join(dir, "sock"), "HOME="+dir)
		var said bytes.Buffer
		cmd.Stderr = &said
		if out, err := cmd.Output(); err != nil || said.String() != want {
			t.Errorf("sbatch %s: %s, %v, said %q", args, out, err, said.String())
		}
	}
}

// TestJSONOfARealSlurm: what berth is held to is true.
func TestJSONOfARealSlurm(t *testing.T) {
	printsJSON(t, testkit.NewSlurm(t, testkit.SlurmSetup{}).Run)
}
