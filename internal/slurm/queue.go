package slurm

import (
	"strings"
	"time"
)

// queueColumns are id, state, reason, node, partition, start, time limit,
// submission, comment and name.
const queueColumns = "%i %T %r %N %P %S %l %V %k %j"

// QueueCommand is the arguments of squeue for a user's jobs, one row per task. Jobs
// that ended a few minutes ago are included, as long as slurmctld remembers them.
func QueueCommand(user string) []string {
	return []string{"--noheader", "--array", "--states=all", "--user=" + user, "--format=" + strings.ReplaceAll(queueColumns, " ", separator)}
}

// Entry is a job in Slurm's queue.
type Entry struct {
	ID        string // "120", or "120_3" for a task of an array
	Comment   string
	Name      string
	State     string // such as PENDING
	Reason    string // why it waits, or ended; empty: none
	Node      string // empty: not started
	Partition string
	Start     time.Time     // expected or real; zero: not known
	Submit    time.Time     // zero: not known
	Limit     time.Duration // 0: none, or not known
}

// Over reports whether a job has ended, and none of its processes is left. A state
// that berth does not know counts as one.
func (e Entry) Over() bool {
	switch e.State {
	case "PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESIZING",
		"SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "RESV_DEL_HOLD":
		return false
	}
	return true
}

// Queue reads what squeue printed.
func Queue(out string) (entries []Entry, err error) {
	table, err := rows("squeue", out, strings.Count(queueColumns, " ")+1)
	for _, cells := range table {
		entries = append(entries, Entry{
			ID: cells[0], State: cells[1], Reason: cells[2], Node: cells[3], Partition: cells[4],
			Start: moment(cells[5]), Limit: span(cells[6]), Submit: moment(cells[7]), Comment: cells[8], Name: cells[9],
		})
	}
	return entries, err
}
