package slurm

import (
	"errors"
	"fmt"
	"os/user"
	"strings"

	"berth/internal/api"
	"berth/internal/compat/frontend"
	"berth/internal/job"
)

var scancel = frontend.Program{Name: "scancel", Usage: scancelUsage, Run: runScancel}

const scancelUsage = `usage: scancel [OPTION...] [ID...]

Cancel jobs: 17, 17_3, 17_[0-9]. Several options select the jobs that match all of
them.

      --me, -u, --user NAME     jobs of this user
  -n, --name NAME               jobs of this name
  -t, --state STATE             PENDING, RUNNING or SUSPENDED
  -Q, --quiet, -v, --verbose    accepted, and ignored
      --help                    print this

berth sends TERM, and KILL after the job's grace period. Other signals (-s) are
refused.

Exit status: 0 cancelled, or there was nothing to cancel; 1 failed; 255 bad usage.

Example:
  scancel --me --state=PENDING
`

type ending struct {
	me                bool
	user, name, state string
}

func scancelOptions() map[string]option[ending] {
	return map[string]option[ending]{
		"me":   on(0, func(e *ending) *bool { return &e.me }),
		"user": kept('u', func(e *ending) *string { return &e.user }), "name": kept('n', func(e *ending) *string { return &e.name }), "jobname": kept(0, func(e *ending) *string { return &e.name }),
		"state": kept('t', func(e *ending) *string { return &e.state }), "quiet": {short: 'Q'}, "verbose": {short: 'v'}, "full": {short: 'f'}, "batch": {short: 'b'},
		"partition": {short: 'p', kind: valued}, "account": {short: 'A', kind: valued}, "qos": {short: 'q', kind: valued}, "hurry": {short: 'H'}, "ctld": {},
		"signal": {'s', valued, func(*ending, string) error {
			return errors.New("berth cancel ends a job; berth submit --signal has a job warned before its time limit")
		}},
		"interactive": {'i', bare, func(*ending, string) error { return errors.New("berth cancel asks nothing; name the jobs") }},
	}
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
	var e ending
	words, err := parse(c.Args, scancelOptions(), &e, true)
	sel := api.Select{Name: e.name, User: e.user}
	if e.state != "" {
		state, known := stateOf(e.state)
		if !known && err == nil {
			err = errors.New("--state: expected PENDING, RUNNING or SUSPENDED")
		}
		sel.States = []string{string(state)}
	}
	if e.me {
		me, lookup := user.Current()
		err, sel.User = errors.Join(err, lookup), me.Username
	}
	for _, word := range words {
		sel.Words = append(sel.Words, jobWords(word)...)
	}
	if err != nil {
		c.Complain(err.Error(), "see scancel --help")
		return badUsage
	}
	if len(sel.Words) == 0 && sel.User == "" && sel.Name == "" && e.state == "" {
		c.Complain("No job identification provided", "see scancel --help")
		return frontend.Failed
	}
	sel.All = len(sel.Words) == 0 && sel.Name == "" && e.state == ""
	return ask(c, func(a *asker) error {
		reply, err := a.client.Act(a.ctx, api.ActRequest{Action: api.ActCancel, Select: sel})
		if err != nil {
			return err
		}
		for _, acted := range reply.Jobs {
			if !acted.Done && !job.State(acted.State).Terminal() {
				return fmt.Errorf("job %s was not cancelled: %s", acted.ID, acted.What)
			}
		}
		return nil
	})
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
