package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"berth/internal/job"
	"berth/internal/machine/run"
	"berth/internal/machine/site"
	"berth/internal/queue"
	"berth/internal/queue/store"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// RestorePlan is what a backup would change, beyond the state itself.
type RestorePlan struct {
	Strays  []string // jobs that run and that the backup does not know
	Again   []string // jobs that ended since the backup, which has them queued
	Unknown int      // jobs of the present store that the backup does not have
	Doubt   string   // why users other than root could have changed the backup
}

// Harmless reports whether no job is forgotten, none runs twice, and nobody but
// root can have written a backup that root restores.
func (p *RestorePlan) Harmless() bool {
	return len(p.Strays)+len(p.Again)+p.Unknown == 0 && p.Doubt == ""
}

// Restore replaces a stopped daemon's state with a backup, and returns where the
// old state is kept. agree is asked first; its error changes nothing.
func Restore(stateDir, backup string, agree func(RestorePlan) error) (kept string, err error) {
	living, err := run.Living(queue.KeepDir(stateDir))
	if err != nil {
		return "", problem.Newf(problem.Unable, "nothing was changed", "%v", err)
	}
	doubt := ""
	if os.Geteuid() == 0 {
		if err := site.TrustedFile(backup); err != nil && !errors.Is(err, fs.ErrNotExist) {
			doubt = err.Error()
		}
	}
	var refusal error
	kept, err = store.Restore(queue.StoreDir(stateDir), backup, func(present, stored *store.Store) error {
		plan := planRestore(living, present, stored)
		plan.Doubt = doubt
		refusal = agree(plan)
		return refusal
	})
	switch {
	case refusal != nil:
		err = refusal
	case errors.Is(err, store.ErrLocked):
		err = problem.Newf(problem.Refused, "is a daemon still running? stop it first", "%v", err)
	case err != nil:
		err = problem.Newf(problem.Refused, "nothing was changed; is this a complete file written by berth backup?", "%v", err)
	}
	return kept, err
}

// planRestore compares the backup with the running jobs and the present store,
// which is nil if it cannot be read.
func planRestore(living []run.Found, present, backup *store.Store) (p RestorePlan) {
	for _, f := range living {
		if _, err := backup.Job(f.Job); errors.Is(err, store.ErrNotFound) {
			p.Strays = append(p.Strays, f.Job)
		}
	}
	slices.SortFunc(p.Strays, func(a, b string) int { // 9 before 10
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
	if present == nil {
		return p
	}
	// A present store that is damaged is a reason to restore, not an obstacle:
	// what can be read of it counts.
	_ = present.Each(func(j *job.Job) error {
		before, err := backup.Job(j.ID)
		switch {
		case errors.Is(err, store.ErrNotFound):
			p.Unknown++
		case err == nil && j.State.Terminal() && before.State == job.Queued:
			p.Again = append(p.Again, j.ID)
		}
		return nil
	})
	return p
}

// Words says what the plan means, a line each.
func (p *RestorePlan) Words() (lines []string) {
	if p.Doubt != "" {
		lines = append(lines, p.Doubt+"; whoever can change a backup decides what berth runs, as any user")
	}
	if n := len(p.Strays); n > 0 {
		lines = append(lines, fmt.Sprintf("running, and not in the backup: %s (%s); left alone as strays, which berth adopt --strays takes back", text.Count(n, "job"), listed(p.Strays)))
	}
	if n := len(p.Again); n > 0 {
		lines = append(lines, fmt.Sprintf("queued in the backup, and ended since: %s (%s); they would run again", text.Count(n, "job"), listed(p.Again)))
	}
	if p.Unknown > 0 {
		lines = append(lines, fmt.Sprintf("not in the backup: %s; forgotten, unless they are running", text.Count(p.Unknown, "job")))
	}
	return lines
}
