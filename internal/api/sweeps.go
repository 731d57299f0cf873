package api

import (
	"time"

	"berth/internal/job"
	"berth/internal/job/sweep"
)

// Sweep makes many jobs of one spec: an array whose tasks have commands of their own.
// {NAME} in the command, the variables, name, dir and output stands for the value of a
// parameter, quoted where a shell reads it.
type Sweep struct {
	Axes    []sweep.Axis `json:"axes" minItems:"1" doc:"the values of the parameters; the trials are the product of all axes"`
	Metrics []string     `json:"metrics,omitempty" doc:"how metrics are picked from the logs, if nothing else is said: [max:|min:]NAME, or a pattern with one group"`
}

// TrialWords is what a trial runs.
type TrialWords struct {
	ID      string      `json:"id,omitempty" doc:"left out in a dry run"`
	Name    string      `json:"name"`
	Command string      `json:"command"`
	Params  []job.Param `json:"params"`
}

// MoreTrials adds trials to a sweep.
type MoreTrials struct {
	JobID
	Axes   []sweep.Axis `json:"axes" minItems:"1" doc:"new values of some parameters; each is combined with what the sweep has of the others"`
	DryRun bool         `json:"dry_run,omitempty" doc:"only say what would be added"`
}

// AddedTrials are those that the sweep did not have.
type AddedTrials struct {
	ID     string       `json:"id" doc:"of the sweep"`
	Trials []TrialWords `json:"trials"`
}

// TrialQuery chooses the trials of a table.
type TrialQuery struct {
	ID      string   `query:"id" eg:"17" about:"the id or the name of a sweep or an array"`
	Batch   string   `query:"batch" names:"file" about:"or a jobs file: its absolute path"`
	Metrics []string `query:"metric" eg:"max:val_acc" about:"what to pick from the logs: [max:|min:]NAME for the value of a key in JSON lines or the number after NAME= or NAME:, or [max:|min:] and a regular expression (RE2) with one group, as in val_acc=([0-9.]+); may be repeated; default: the metrics of the sweep; -: none"`
}

// TrialTable is a sweep with the results of its trials.
type TrialTable struct {
	ID      string         `json:"id,omitempty" doc:"of the sweep or array"`
	File    string         `json:"file,omitempty" doc:"or the jobs file"`
	Name    string         `json:"name"`
	User    string         `json:"user"`
	Params  []string       `json:"params" doc:"the parameters, in order"`
	Metrics []MetricColumn `json:"metrics" doc:"what was picked from the logs"`
	Tasks
	Trials []TrialRow `json:"trials" doc:"in the order of submission, at most 10000"`
	Unread int        `json:"unread,omitempty" doc:"how many logs were not read in full, because the logs of one request are read for 20 seconds, and 16 MiB of each"`
}

// MetricColumn is a metric of a table.
type MetricColumn struct {
	Name string `json:"name"`
	Best string `json:"best" enum:"last,max,min" doc:"which value of a log counts"`
	From string `json:"from" doc:"as it was asked for"`
}

// TrialRow is a trial with its results.
type TrialRow struct {
	ID          string            `json:"id"`
	Name        string            `json:"name"`
	State       job.State         `json:"state"`
	Outcome     *job.Outcome      `json:"outcome"`
	Params      map[string]string `json:"params" doc:"of an array: index"`
	StartedAt   *time.Time        `json:"started_at"`
	Seconds     *float64          `json:"seconds" doc:"how long the last attempt ran, or has run"`
	PeakVRAMMiB *int64            `json:"peak_vram_mib" doc:"the highest of its GPUs"`
	Attempt     int               `json:"attempt"`
	Metrics     map[string]any    `json:"metrics" doc:"by name: a number, text that is no number, or null if its log does not have it"`
}

// SweepSum is a sweep in a list.
type SweepSum struct {
	ID          string     `json:"id"`
	Name        string     `json:"name"`
	User        string     `json:"user"`
	Params      []string   `json:"params"`
	SubmittedAt *time.Time `json:"submitted_at"`
	Tasks
}

// SweepQuery says whose sweeps to list.
type SweepQuery struct {
	User string `query:"user" about:"whose; *: every user's; default: the caller's own"`
	All  bool   `query:"all" about:"include those that have ended, as far as they are among the last 10000 jobs that did"`
}
