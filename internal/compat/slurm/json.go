package slurm

import (
	"cmp"
	"encoding/json"
	"os/user"
	"strconv"
	"strings"
	"time"

	"berth/internal/compat/frontend"
	"berth/internal/job"
)

// object is a part of what --json prints. Its keys are those of Slurm 22.05, with
// Slurm's types; what means nothing on one machine is left out.
type object map[string]any

// print writes a list as --json does.
func (a *asker) print(plugin, key string, list []object) error {
	out := json.NewEncoder(a.Out)
	out.SetIndent("", "  ")
	return out.Encode(object{
		"meta": object{
			"plugin": object{"type": plugin, "name": "berth " + a.Version},
			"Slurm":  object{"version": object{"major": 22, "micro": 8, "minor": 5}, "release": release},
		},
		"errors": []string{}, key: append([]object{}, list...),
	})
}

// epoch is a time in seconds; 0: not known.
func epoch(t *time.Time) int64 {
	if t == nil {
		return 0
	}
	return t.Unix()
}

// number is the digits at the beginning of a word.
func number(word string) int64 {
	n, _ := strconv.ParseInt(word[:len(word)-len(strings.TrimLeft(word, "0123456789"))], 10, 64) // no digits: 0
	return n
}

func uid(name string) int64 {
	if u, err := user.Lookup(name); err == nil {
		return number(u.Uid)
	}
	return 0
}

// minutes is a time limit; nil: none.
func minutes(seconds float64) any {
	if seconds == 0 {
		return nil
	}
	return int64(seconds+59) / 60
}

// task is the index of a task; nil for any other job, and for several tasks.
func (e *entry) task() any {
	_, index, isTask := strings.Cut(e.ID, "_")
	if !isTask || e.tasks != "" {
		return nil
	}
	return number(index)
}

func (e *entry) arrayNumber() int64 {
	if !strings.Contains(e.ID, "_") {
		return 0
	}
	return number(e.ID)
}

// queued is a job as squeue --json has it.
func (a *asker) queued(e *entry) object {
	d := a.detail(e.ID)
	long, _ := state(&e.View)
	status := int64(frontend.Value(e.ExitCode)) << 8
	if e.Signal != nil {
		status = int64(signalNumber(*e.Signal))
	}
	gpus, detail := "", []string{}
	if e.GPUs > 0 {
		gpus = "gres:gpu:" + strconv.Itoa(e.GPUs)
	}
	if len(e.GPUIDs) > 0 {
		detail = append(detail, "gpu:"+strconv.Itoa(len(e.GPUIDs))+"(IDX:"+spans(append([]int{}, e.GPUIDs...))+")")
	}
	dependency := a.dependency(d)
	if dependency == "(null)" {
		dependency = ""
	}
	return object{
		"job_id": number(e.ID), "array_job_id": e.arrayNumber(), "array_task_id": e.task(), "array_task_string": e.tasks,
		"name": e.Name, "user_name": e.User, "user_id": uid(e.User), "account": "", "qos": "normal", "partition": partition, "cluster": partition,
		"job_state": long, "state_reason": e.reason(), "state_description": "", "dependency": dependency, "priority": e.Priority,
		"submit_time": epoch(e.SubmittedAt), "eligible_time": epoch(e.SubmittedAt), "start_time": epoch(e.StartedAt), "end_time": epoch(e.ends(d.TimeLimitS)), "suspend_time": epoch(e.ParkedSince),
		"time_limit": minutes(d.TimeLimitS), "exit_code": status, "derived_exit_code": 0, "restart_cnt": max(0, e.Attempt-1), "requeue": d.Settings["requeue"] != "",
		"nodes": a.node(e), "batch_host": a.node(e), "node_count": 1, "tasks": 1, "cpus": max(1, number(d.Settings["cpus"])), "tres_per_node": gpus, "gres_detail": detail,
		"command": frontend.Value(e.Command), "current_working_directory": d.Dir, "standard_output": cmp.Or(frontend.Value(e.Log), d.Settings["output"]), "standard_error": "", "standard_input": "/dev/null",
		"batch_flag": true, "flags": []string{}, "comment": "", "features": "",
	}
}

// accounted is a job as sacct --json has it.
func (a *asker) accounted(e *entry) object {
	d := a.detail(e.ID)
	long, _ := state(&e.View)
	exit := object{"status": "SUCCESS", "return_code": frontend.Value(e.ExitCode)}
	switch {
	case e.Signal != nil:
		exit["status"], exit["signal"] = "SIGNALED", object{"signal_id": signalNumber(*e.Signal), "name": *e.Signal}
	case e.State.Terminal() && e.State != job.Finished:
		exit["status"] = "ERROR"
	case !e.State.Terminal():
		exit["status"] = "PENDING"
	}
	reserved := []object{{"type": "cpu", "name": "", "id": 1, "count": max(1, number(d.Settings["cpus"]))}, {"type": "node", "name": "", "id": 4, "count": 1}}
	if e.GPUs > 0 {
		reserved = append(reserved, object{"type": "gres", "name": "gpu", "id": 1001, "count": e.GPUs})
	}
	return object{
		"job_id": number(e.ID), "array": object{"job_id": e.arrayNumber(), "task_id": e.task(), "task": nil},
		"name": e.Name, "user": e.User, "account": "", "qos": "normal", "partition": partition, "cluster": partition, "nodes": cmp.Or(a.node(e), "None assigned"), "allocation_nodes": 1,
		"state": object{"current": long, "reason": e.reason()}, "exit_code": exit, "derived_exit_code": object{"status": "SUCCESS", "return_code": 0}, "priority": e.Priority,
		"time": object{
			"submission": epoch(e.SubmittedAt), "eligible": epoch(e.SubmittedAt), "start": epoch(e.StartedAt), "end": epoch(e.EndedAt),
			"elapsed": int64(a.elapsed(&e.View) / time.Second), "suspended": int64(e.ParkedS), "limit": minutes(d.TimeLimitS),
		},
		"tres": object{"allocated": reserved, "requested": reserved}, "working_directory": d.Dir, "steps": []object{}, "flags": []string{},
	}
}

// described is this machine as sinfo --json has it.
func (m *machine) described() object {
	long, _ := m.state()
	return object{
		"name": m.host, "hostname": m.host, "address": m.host, "state": long, "state_flags": []string{}, "partitions": []string{partition},
		"cpus": m.cpus, "real_memory": m.memMiB, "gres": m.gres(), "gres_used": m.gresUsed(), "reason": m.reason(), "weight": 1, "temporary_disk": 0,
		"features": "", "active_features": "", "comment": "", "slurmd_version": release,
	}
}
