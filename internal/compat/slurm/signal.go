package slurm

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/text"
)

// signalOf reads USR1, SIGUSR1 or 10; 0: unknown.
func signalOf(word string) int {
	if n, whole := text.Digits(word, 2); whole && n <= 64 {
		return n
	}
	return signalNumber(strings.ToUpper(word))
}

// send sends a signal to the processes of running jobs, as the caller: the kernel
// decides whether it may. As in Slurm, only steps get it, unless the script or all
// of the job is asked for.
func (e *ending) send(a *asker, sel api.Select) error {
	processes, err := keep.Processes()
	if err != nil {
		return err
	}
	_, err = a.client.JobsAll(a.ctx, api.Query{Select: sel}, func(v job.View) error {
		if v.State != job.Running || v.StartedAt == nil {
			return nil
		}
		its := []string{"BERTH_JOB_ID=" + v.ID, "BERTH_ATTEMPT=" + strconv.Itoa(v.Attempt), "SLURM_JOB_START_TIME=" + strconv.FormatInt(v.StartedAt.Unix(), 10)}
		found := 0
		for _, p := range processes {
			environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID)) // not of other users, nor of one that has ended
			vars := strings.Split(string(environ), "\x00")
			if slices.ContainsFunc(its, func(pair string) bool { return !slices.Contains(vars, pair) }) {
				continue
			}
			inStep := slices.ContainsFunc(vars, func(pair string) bool { return strings.HasPrefix(pair, "SLURM_STEP_ID=") })
			if found++; e.full || e.batch && found == 1 || !e.batch && inStep { // the script is the oldest
				if err := p.Signal(e.signal); err != nil {
					return fmt.Errorf("job %s: %w", v.ID, err)
				}
			}
		}
		if found == 0 {
			return fmt.Errorf("job %s has no process of yours with SLURM_ variables; %s was not sent", v.ID, unix.SignalName(unix.Signal(e.signal)))
		}
		return nil
	})
	return err
}
