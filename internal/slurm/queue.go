package slurm

import (
	"strings"
	"time"
)

// separator is in no name, comment or reason that berth writes, and people cannot
// type it by accident.
const separator = "\x1f"

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

// Queue reads what squeue printed. Rows of another form, such as a banner of the
// site, are skipped.
func Queue(out string) ([]Entry, error) {
	var entries []Entry
	columns := strings.Count(queueColumns, " ") + 1
	for row := range strings.Lines(out) {
		cells := strings.SplitN(strings.TrimRight(row, "\r\n"), separator, columns)
		if len(cells) < columns {
			continue
		}
		for i := range cells[:columns-1] { // a job may be named None
			cells[i] = value(cells[i])
		}
		entries = append(entries, Entry{
			ID: cells[0], State: cells[1], Reason: cells[2], Node: cells[3], Partition: cells[4],
			Start: moment(cells[5]), Limit: span(cells[6]), Submit: moment(cells[7]), Comment: cells[8], Name: cells[9],
		})
	}
	if len(entries) == 0 && strings.TrimSpace(out) != "" {
		return nil, unexpected("squeue", out)
	}
	return entries, nil
}
