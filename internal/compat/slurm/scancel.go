package slurm

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"

	"golang.org/x/sys/unix"

	"berth/internal/api"
	"berth/internal/compat/frontend"
	"berth/internal/job"
	"berth/internal/text"
	"berth/internal/text/problem"
)

var scancel = frontend.Program{Name: "scancel", Usage: scancelUsage, Run: runScancel}

const scancelUsage = `usage: scancel [OPTION...] [ID...]

Cancel jobs: 17, 17_3, 17_[0-9]. Several options select the jobs that match all of
them.

      --me, -u, --user NAME     jobs of this user
  -n, --name NAME               jobs of this name
  -t, --state STATE             PENDING, RUNNING or SUSPENDED
  -p, --partition NAME          jobs of this partition; the only one is berth
  -w, --nodelist NAMES          jobs running on these nodes; the only one is this
                                machine
  -s, --signal SIGNAL           send this signal to the job's steps instead
  -b, --batch, -f, --full       with --signal: to its script alone; to all of it
  -v, --verbose                 name the ids that no job has
  -Q, --quiet                   accepted, and ignored
      --help                    print this

berth sends TERM, and KILL after the job's grace period. Only the job's user and
root can send it another signal, and only to a job with SLURM_ variables. Accounts
(-A) and QOS (-q) are refused.

Exit status: 0 cancelled, or there was nothing to cancel; 1 failed or bad usage. As
in Slurm, an id that no job has is an error only beside an option that selects jobs,
and with --signal.

Example:
  scancel --me --state=PENDING
`

type ending struct {
	me, full, batch, verbose     bool
	signal                       int // 0: it is cancelled
	user, name, state, partition string
	nodes                        []string
}

func (e *ending) options() options {
	known := options{
		"me":   on(0, &e.me),
		"user": kept('u', &e.user), "name": kept('n', &e.name), "jobname": kept(0, &e.name),
		"state": kept('t', &e.state), "verbose": on('v', &e.verbose),
		"full": on('f', &e.full), "batch": on('b', &e.batch),
		"partition": kept('p', &e.partition), "nodelist": listed('w', &e.nodes),
		"account": without('A', "accounts"), "qos": without('q', "QOS"),
		"signal": {'s', valued, func(value string) error {
			if e.signal = signalOf(value); e.signal == 0 {
				return text.Mismatch(value, "a signal such as USR1 or 10")
			}
			return nil
		}},
		"interactive": refused('i', bare, "berth cancel asks nothing; name the jobs"),
	}
	return known.ignore(bare, "quiet:Q hurry:H ctld")
}

// stateOf is berth's state for one of Slurm's that a job can be cancelled in.
func stateOf(word string) (job.State, bool) {
	switch strings.ToUpper(word) {
	case "PENDING", "PD":
		return job.Queued, true
	case "RUNNING", "R":
		return job.Running, true
	case "SUSPENDED", "S":
		return job.Parked, true
	}
	return "", false
}

func runScancel(c *frontend.Call) int {
	c = byNumber(c)
	var e ending
	words, err := e.options().parse(c.Args, true)
	sel, wrong := e.selected(words)
	if err = cmp.Or(err, wrong); err != nil {
		return c.Misuse(err.Error(), frontend.Failed)
	}
	if len(words) == 0 && e.nothing() {
		return c.Misuse("No job identification provided", frontend.Failed)
	}
	host, _ := os.Hostname()
	if e.partition != "" && e.partition != partition || !among(e.nodes, host) {
		return 0
	}
	unknown, strict := false, e.signal != 0 || !e.nothing()
	status := ask(c, func(a *asker) error {
		for _, word := range sel.Words {
			if !strict && !e.verbose || strings.Contains(word, "-") {
				continue // as in Slurm: it may have ended long ago
			}
			if _, err := api.Call(a.ctx, a.client, api.GetJob, api.JobID{ID: word}); problem.KindOf(err) == problem.NotFound {
				unknown = strict
				c.Complain("error: Kill job error on job id "+word+": Invalid job id specified", "")
			}
		}
		if e.signal != 0 && e.signal != int(unix.SIGKILL) {
			return e.send(a, sel)
		}
		request := api.ActRequest{Action: api.ActCancel, Select: sel}
		if e.signal != 0 {
			request.GraceS = new(float64) // KILL at once
		}
		reply, err := api.Call(a.ctx, a.client, api.Act, request)
		if problem.KindOf(err) == problem.NotFound {
			return nil
		}
		if err != nil {
			return err
		}
		for _, acted := range reply.Jobs {
			if !acted.Done && acted.State != "" && !job.State(acted.State).Terminal() {
				return fmt.Errorf("job %s was not cancelled: %s", acted.ID, acted.What)
			}
		}
		return nil
	})
	if unknown {
		return frontend.Failed
	}
	return status
}

// nothing reports that no option selects jobs.
func (e *ending) nothing() bool {
	return !e.me && e.user == "" && e.name == "" && e.state == "" && e.partition == "" && len(e.nodes) == 0
}

// selected is berth's selection of the jobs. The partition and the nodes select
// all of them or none, except that a waiting job is on no node.
func (e *ending) selected(words []string) (sel api.Select, err error) {
	sel.Name, sel.User = e.name, e.user
	states := []job.State{}
	if len(e.nodes) > 0 {
		states = []job.State{job.Running, job.Parked}
	}
	if e.state != "" {
		state, known := stateOf(e.state)
		if !known {
			return sel, errors.New("--state: expected PENDING, RUNNING or SUSPENDED")
		}
		if len(e.nodes) > 0 && state == job.Queued {
			return sel, errors.New("--nodelist: a pending job has no node")
		}
		states = []job.State{state}
	}
	for _, state := range states {
		sel.States = append(sel.States, string(state))
	}
	if e.me {
		me, err := user.Current()
		if err != nil {
			return sel, err
		}
		sel.User = me.Username
	}
	for _, word := range words {
		for _, id := range jobWords(word) {
			if strings.Trim(id, "0123456789_-") != "" {
				return sel, fmt.Errorf("Invalid job id %s", text.Found(word)) // berth would take it for a name
			}
			sel.Words = append(sel.Words, id)
		}
	}
	sel.All = len(sel.Words) == 0 && sel.Name == "" && len(sel.States) == 0
	return sel, nil
}

// jobWords reads 17,18 and 17_[1,3-5], whose commas are those of the tasks.
func jobWords(word string) (words []string) {
	for word != "" {
		array, rest, isList := strings.Cut(word, "_[")
		if before, after, several := strings.Cut(word, ","); !isList || several && len(before) < len(array) {
			words, word = append(words, before), after
			continue
		}
		tasks, after, _ := strings.Cut(rest, "]")
		for task := range strings.SplitSeq(tasks, ",") {
			words = append(words, array+"_"+task)
		}
		word = strings.TrimPrefix(after, ",")
	}
	return words
}
