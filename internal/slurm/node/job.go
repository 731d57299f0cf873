package node

import (
	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/slurm/handover"
)

// only is the job as this one-job berth runs it: at once, once, on all the cards.
// What Slurm decides and enforces, and what the berth that handed it over decides,
// is left out.
func only(order *handover.Order, cards []gpu.Device) *job.Job {
	from := &order.Job
	spec := from.Spec
	spec.To, spec.Slurm, spec.SlurmEnv = job.ToLocal, "", false
	spec.After, spec.Notify, spec.Adopt, spec.Allow = nil, nil, nil, nil
	spec.Retries, spec.Requeue, spec.MaxRequeues, spec.ArrayLimit = 0, false, 0, 0
	spec.OnTimeout, spec.Preemptible, spec.Checkpoint, spec.SavesTo, spec.NoPark = job.TimeoutKill, job.NotPreemptible, 0, "", true
	spec.Type, spec.Group, spec.Exclusive, spec.VRAMAuto = "", "", false, false
	spec.CPUs, spec.MemMiB, spec.Pin = 0, 0, false

	spec.GPUs, spec.IDs, spec.VRAMMiB = len(cards), nil, from.VRAMMiB
	for _, d := range cards {
		spec.IDs = append(spec.IDs, d.Index)
		if d.TotalMiB-d.ReservedMiB < spec.VRAMMiB {
			spec.VRAMMiB = 0 // Slurm knew better
		}
	}
	if len(cards) != 1 {
		spec.Share = 0
	}
	if len(cards) == 0 {
		spec.VRAMMiB, spec.Cap = 0, ""
	}
	j := &job.Job{ID: from.ID, Seq: 1, User: from.User, UID: from.UID, Umask: from.Umask, Spec: spec}
	j.Attempt.Number = max(0, from.Attempt.Number-1) // its start counts on
	return j
}
