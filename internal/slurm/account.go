package slurm

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/text"
)

const accountColumns = "JobID,State,ExitCode,Start,End,NodeList,Comment,JobName"

// AccountCommand is the arguments of sacct for some jobs. Slurm may have given an id
// twice, so it lists all jobs of each.
func AccountCommand(ids []string) []string {
	return []string{"--noheader", "--parsable2", "--delimiter=" + separator, "--allocations", "--duplicates",
		"--starttime=1970-01-02", "--jobs=" + strings.Join(ids, ","), "--format=" + accountColumns}
}

// Account is what slurmdbd recorded about a job.
type Account struct {
	ID       string // "120", or "120_3" for a task of an array
	Comment  string // empty where the site does not store comments
	Name     string
	State    string // such as COMPLETED, or CANCELLED by 1000
	Node     string
	ExitCode int
	Signal   int // that ended it; 0: none
	Start    time.Time
	End      time.Time // zero: it has not ended
	Words    string    `json:",omitempty"` // what Slurm printed about its end
}

// OutOfMemory is Slurm's state of a job that it killed for its host memory.
const OutOfMemory = "OUT_OF_MEMORY"

// Killed reports whether a job was killed, perhaps for its host memory.
func (a *Account) Killed() bool { return a.State == OutOfMemory || a.Signal == 9 }

// MemoryWords returns Slurm's line about killing a run, by its Slurm id, for its host
// memory, or "".
func MemoryWords(out, number string) (words string) {
	for line := range strings.Lines(out) {
		_, said, _ := strings.Cut(strings.TrimSpace(line), "error: ")
		about := strings.Contains(said, "Step "+number+".") || strings.Contains(said, "StepId="+number+".")
		if about && (strings.Contains(said, "memory limit") || strings.Contains(said, "oom")) {
			words = said
		}
	}
	return words
}

// Accounts reads what sacct printed.
func Accounts(out string) (accounts []Account, err error) {
	table, err := rows("sacct", out, strings.Count(accountColumns, ",")+1)
	for _, cells := range table {
		a := Account{ID: cells[0], State: cells[1], Start: moment(cells[3]), End: moment(cells[4]), Node: cells[5], Comment: cells[6], Name: cells[7]}
		code, signal, _ := strings.Cut(cells[2], ":")
		a.ExitCode, _ = text.Digits(code, 6)
		a.Signal, _ = text.Digits(signal, 6)
		accounts = append(accounts, a)
	}
	return accounts, err
}

// signals are the names of those that commonly end a job, by Linux's numbers.
var signals = map[int]string{1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL", 10: "USR1", 11: "SEGV",
	12: "USR2", 13: "PIPE", 14: "ALRM", 15: "TERM", 24: "XCPU", 25: "XFSZ", 31: "SYS"}

// Outcome is how Slurm says a job ended, and why. It is empty for a job that has
// not ended.
func (a Account) Outcome() (job.Outcome, string) {
	state, rest, _ := strings.Cut(strings.TrimSuffix(a.State, "+"), " ")
	node := a.Node
	node = cmp.Or(node, "its node")
	switch state {
	case "COMPLETED":
		return job.OK, ""
	case "FAILED":
		return a.failed()
	case "TIMEOUT":
		return job.Timeout, "Slurm ended it at its time limit"
	case "DEADLINE":
		return job.Timeout, "Slurm ended it at its deadline"
	case OutOfMemory:
		words := a.Words
		if words != "" {
			words = " (" + words + ")"
		}
		return job.OOM, "it used more host memory than it requested on " + node + words + "; raise --mem"
	case "NODE_FAIL":
		return job.Lost, node + " failed"
	case "BOOT_FAIL":
		return job.Launch, node + " could not be booted"
	case "LAUNCH_FAILED", "RECONFIG_FAIL":
		return job.Launch, "Slurm could not start it on " + node
	case "PREEMPTED":
		return job.Lost, "Slurm preempted it"
	case "REQUEUED":
		return job.Lost, "Slurm requeued it"
	case "REVOKED":
		return job.Lost, "another cluster took it over"
	case "CANCELLED":
		who := strings.TrimPrefix(rest, "by ")
		switch {
		case who == "0":
			return job.WasCancelled, "cancelled in Slurm by root"
		case who != "":
			return job.WasCancelled, "cancelled in Slurm by user " + who
		}
		return job.WasCancelled, "cancelled in Slurm"
	}
	return "", ""
}

// Doubtful reports whether a job without a record may still run: Slurm does not know
// it, or gave it up without a word from its node, and may have run its script again
// elsewhere.
func (a *Account) Doubtful() bool {
	return a == nil || strings.HasPrefix(a.State, "NODE_FAIL") || a.Again()
}

// Again reports whether Slurm put a job that had begun back into its queue: it says
// so, or its script ended well, as only one does that finds its job begun already.
func (a *Account) Again() bool { return a.State == "REQUEUED" || a.State == "COMPLETED" }

func (a Account) failed() (job.Outcome, string) {
	if a.Signal > 0 {
		name, known := signals[a.Signal]
		if !known {
			name = fmt.Sprint(a.Signal)
		}
		return job.Signalled(name), ""
	}
	if a.ExitCode > 0 {
		return job.Exited(a.ExitCode), ""
	}
	return job.Launch, "Slurm says that it failed, without an exit code"
}
