package job

import (
	"strconv"
	"time"
)

// View is a job as --json shows it: a stable contract (docs/reference/json.md).
// Missing values are null, times are RFC 3339.
type View struct {
	ID          string            `json:"id"`
	Name        string            `json:"name"`
	User        string            `json:"user"`
	State       State             `json:"state"`
	Outcome     *Outcome          `json:"outcome"`
	Reason      *string           `json:"reason"`
	Priority    int               `json:"priority"`
	Command     *string           `json:"command"` // null: another user's
	GPUs        int               `json:"gpus"`
	Share       *float64          `json:"share"`
	VRAMMiB     *int64            `json:"vram_mib"`
	GPUIDs      []int             `json:"gpu_ids"`
	AskedIDs    []int             `json:"asked_ids"` // null: it did not name GPUs
	Attempt     int               `json:"attempt"`
	SubmittedAt *time.Time        `json:"submitted_at"`
	StartedAt   *time.Time        `json:"started_at"`
	EndedAt     *time.Time        `json:"ended_at"`
	ExitCode    *int              `json:"exit_code"`
	Signal      *string           `json:"signal"`
	PeakVRAMMiB map[string]int64  `json:"peak_vram_mib"`
	AvgUtil     *float64          `json:"avg_util"`
	ChargedGPUs *float64          `json:"charged_gpus"` // null: it has not started
	Log         *string           `json:"log"`
	IdleSince   *time.Time        `json:"idle_since"`   // null: it uses its GPUs or CPUs, or that is not known
	Preemptions int               `json:"preemptions"`  // how often it was preempted
	Held        bool              `json:"held"`         // it waits for berth release
	Group       *string           `json:"group"`        // null: none
	Batch       *string           `json:"batch"`        // the jobs file it is a line of; null: none
	Parkings    int               `json:"parkings"`     // how often its attempt was parked
	ParkedS     float64           `json:"parked_s"`     // how long, up to parked_since
	ParkedSince *time.Time        `json:"parked_since"` // null: it is not parked
	HostMiB     *int64            `json:"host_mib"`     // what it holds of the host's memory while it is parked
	Parking     *ParkPhase        `json:"parking"`      // null: it is neither being parked nor coming back
	ParkRefused *string           `json:"park_refused"` // why it could not be parked; null: nothing was refused
	Checkpoints *CheckpointsView  `json:"checkpoints"`  // of a job that saves its own work; null: it does not say so
	Slurm       *SlurmView        `json:"slurm"`        // null: it runs on this machine
	Sweep       *string           `json:"sweep"`        // the name of the sweep it is a trial of; null: none, or it has no name
	Params      map[string]string `json:"params"`       // its parameters, if it is a trial of a sweep; null: it is not
}

// SlurmView is a job's place on a Slurm cluster. What is not known yet is null.
type SlurmView struct {
	ID     *string `json:"id"`
	Node   *string `json:"node"`
	GPUIDs []int   `json:"gpu_ids"` // on that node
}

// Where is the node and GPUs of a job that runs on Slurm, as in n1:0,1; empty: it
// runs here, or has not started.
func (s *SlurmView) Where() string {
	if s == nil || s.Node == nil {
		return ""
	}
	if len(s.GPUIDs) == 0 {
		return *s.Node
	}
	return *s.Node + ":" + Grant{GPUs: s.GPUIDs}.List()
}

// View is the public form of the job, and shares its values: a job of which there is a
// view does not change.
func (j *Job) View() View {
	v := View{
		ID: j.ID, Name: j.Name(), User: j.User, State: j.State, Held: j.Held,
		Priority: j.Spec.Priority, GPUs: j.Spec.GPUs,
		Attempt: j.Attempt.Number, Preemptions: j.Preemptions, ExitCode: j.ExitCode, AvgUtil: j.AvgUtil,
		SubmittedAt: timeOrNull(&j.SubmittedAt), StartedAt: timeOrNull(&j.StartedAt), EndedAt: timeOrNull(&j.EndedAt),
		Outcome: orNull(&j.Outcome), Reason: orNull(&j.Detail), Share: orNull(&j.Spec.Share),
		VRAMMiB: orNull(&j.VRAMMiB), Signal: orNull(&j.Signal), Log: orNull(&j.Log), IdleSince: timeOrNull(&j.IdleSince), Group: orNull(&j.Spec.Group), Batch: orNull(&j.Spec.Batch),
	}
	if v.Command = orNull(&j.Spec.Shell); v.Command == nil {
		command := j.Spec.Command()
		v.Command = orNull(&command)
	}
	v.Sweep, v.Params = orNull(&j.Spec.Trial.Sweep), j.Spec.Trial.Values()
	v.Parkings, v.ParkedS = j.Parking.Times, j.WasParked().Seconds()
	v.ParkRefused, v.Checkpoints = orNull(&j.Parking.Refused), j.checkpointsView()
	if j.State == Running { // it may have ended on the way
		v.Parking = orNull(&j.Parking.Phase)
	}
	if j.State == Parked {
		hostMiB := j.Parking.HostMiB()
		v.ParkedSince, v.HostMiB = timeOrNull(&j.Parking.Since), orNull(&hostMiB)
	}
	if len(j.Spec.IDs) > 0 {
		v.AskedIDs = j.Spec.IDs
	}
	switch held := j.Attempt.Number > 0 && len(j.Grant.GPUs) > 0; {
	case j.Spec.To == ToSlurm:
		v.Slurm = &SlurmView{ID: orNull(&j.Handover.Slurm), Node: orNull(&j.Handover.Node)}
		if held {
			v.Slurm.GPUIDs = j.Grant.GPUs
		}
	case held:
		v.GPUIDs = j.Grant.GPUs
	}
	if !j.StartedAt.IsZero() {
		charged := j.ChargedGPUs()
		v.ChargedGPUs = &charged
	}
	if j.PeakMiB != nil {
		v.PeakVRAMMiB = make(map[string]int64, len(j.PeakMiB))
		for card, mib := range j.PeakMiB {
			v.PeakVRAMMiB[strconv.Itoa(card)] = mib
		}
	}
	return v
}

func orNull[T comparable](value *T) *T {
	var zero T
	if *value == zero {
		return nil
	}
	return value
}

func timeOrNull(t *time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return t
}
