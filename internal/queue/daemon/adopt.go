package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/machine/gpu"
	"berth/internal/machine/run"
	"berth/internal/queue/engine"
	"berth/internal/sched"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// adoptions takes in processes and supervisors that are not in the queue.
type adoptions struct {
	svc   *service
	jobs  *jobs
	cards *cards
}

// Adopt makes a job that represents a process berth did not start. berth
// accounts for the process and leaves it alone.
func (h *adoptions) Adopt(ctx context.Context, c api.Caller, r api.AdoptRequest) (api.Detail, error) {
	a := adoption{h: h, caller: c, request: r}
	err := a.run(ctx)
	var jobs []string
	if a.job != nil && a.job.ID != "" && err == nil {
		jobs = []string{a.job.ID}
	}
	h.svc.Note(c, "adopt", jobs, a.audited(), err)
	if err != nil {
		return api.Detail{}, err
	}
	return h.jobs.Job(ctx, c, a.job.ID)
}

// adoption is a request in progress.
type adoption struct {
	h       *adoptions
	caller  api.Caller
	request api.AdoptRequest

	process run.External
	spec    job.Spec
	job     *job.Job
	// ahead means that the job holds more than the process uses now: GPUs or memory
	// that other jobs wait in line for. Only administrators may do that.
	ahead bool
}

func (a *adoption) audited() string {
	if a.ahead {
		return fmt.Sprintf("process %d, on GPU %s, beyond what it uses", a.request.PID, text.Numbers(a.spec.IDs))
	}
	return fmt.Sprintf("process %d", a.request.PID)
}

func (a *adoption) run(ctx context.Context) error {
	steps := []func(context.Context) error{a.read, a.look, a.check, a.accept}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// read parses the request and looks up the process it names.
func (a *adoption) read(ctx context.Context) error {
	var pairs []jobfile.Pair
	for key, value := range map[string]string{"name": a.request.Name, "vram": a.request.VRAM} {
		if value != "" {
			pairs = append(pairs, jobfile.Pair{Key: key, Value: value})
		}
	}
	asked, err := jobfile.Ask(pairs, time.Now(), job.Defaults(), 0)
	if err == nil && asked.Spec.VRAMAuto {
		err = errors.New("vram: auto is only for jobs that berth starts; the memory of an adopted process is measured anyway")
	}
	if err != nil {
		return problem.Newf(problem.Invalid, "berth adopt --help shows an example", "%v", err)
	}
	a.spec = asked.Spec
	a.process, err = run.ReadExternal(a.request.PID)
	switch {
	case errors.Is(err, run.ErrNoProcess):
		return problem.Newf(problem.NotFound, "ps lists processes; berth gpus -v lists those on the GPUs", "there is no process %d", a.request.PID)
	case err != nil:
		return problem.Newf(problem.Unable, "the daemon must be able to see the process in /proc", "%v", err)
	}
	return a.permit(ctx)
}

// permit checks that the caller may adopt the process. The kernel says who owns
// it.
func (a *adoption) permit(ctx context.Context) error {
	p, svc := &a.process, a.h.svc
	switch {
	case p.Kernel:
		return problem.Newf(problem.Refused, "", "process %d is a kernel thread (%s)", p.PID, p.Name)
	case p.Leader != p.PID:
		return problem.Newf(problem.Invalid, fmt.Sprintf("berth adopt %d", p.Leader), "%d is a thread of process %d", p.PID, p.Leader)
	}
	theirs := p.UID == a.caller.UID || a.caller.Admin
	if !svc.places.Shared {
		// A private daemon has one user, and all its jobs run as that user.
		theirs = p.UID == svc.people.UID
	}
	owner := svc.people.Name(p.UID)
	if user, err := svc.people.Users.ByUID(ctx, p.UID); err == nil {
		owner = user.Name
	} else if theirs && svc.places.Shared {
		return problem.Newf(problem.Unable, "ask the administrator to check the user database (getent passwd)", "process %d belongs to uid %d, which cannot be looked up", p.PID, p.UID)
	}
	if !theirs {
		hint := "its owner can adopt it, and so can root and the admin group"
		if !svc.places.Shared {
			hint = "a private daemon accounts only for processes of its own user"
		}
		return problem.Newf(problem.Forbidden, hint, "process %d belongs to %s", p.PID, owner)
	}
	if run.Within(os.Getpid(), p.Process) {
		return problem.Newf(problem.Refused, "adopt the process that uses the GPU", "the berth daemon itself is a descendant of process %d", p.PID)
	}
	a.job = &job.Job{User: owner, UID: p.UID, Umask: -1}
	return nil
}

// look has the cards read again: the last reading may be from before the process
// used one.
func (a *adoption) look(ctx context.Context) error {
	begun := time.Now()
	return a.h.cards.lookAgain(ctx, func(t *engine.Turn) bool {
		at, _ := t.Cards().ReadAt()
		return !at.Before(begun)
	}, lookTime)
}

// check makes sure that berth does not own the process already, and finds its
// cards.
func (a *adoption) check(ctx context.Context) error {
	var occupants map[int][]gpu.Process
	var known []gpu.Device
	var refusal error
	err := a.h.svc.Do(ctx, func(t *engine.Turn) {
		if _, trouble := t.Cards().ReadAt(); trouble != nil {
			refusal = problem.Newf(problem.Unable, "try again when berth gpus shows them", "the GPUs cannot be read, so berth cannot tell which of them the process uses: %v", trouble)
			return
		}
		occupants, known = unowned(t.Cards().Occupants(), t.Bookings().OwnerOf), t.Cards().Devices()
		refusal = a.unclaimed(t)
	})
	if err = errors.Join(err, refusal); err != nil {
		return err
	}
	use := a.usedMiB(occupants)
	if !a.caller.Admin {
		if err := a.withinUse(use, occupants, a.h.svc.Config().Rules); err != nil {
			return err
		}
	}
	return a.setCards(use, known)
}

// unowned leaves out processes that already belong to a job. If a child of the
// process was adopted before, its memory is not counted twice.
func unowned(occupants map[int][]gpu.Process, ownerOf func(pid int) (key string, known bool)) map[int][]gpu.Process {
	for index, processes := range occupants {
		occupants[index] = slices.DeleteFunc(processes, func(p gpu.Process) bool {
			key, _ := ownerOf(p.PID)
			return key != ""
		})
	}
	return occupants
}

// unclaimed refuses a process that already belongs to berth. It runs in the
// engine's goroutine.
func (a *adoption) unclaimed(t *engine.Turn) error {
	pid := a.process.PID
	if id, found := t.Requests().Adopted(a.process.Process); found {
		return problem.Newf(problem.Refused, "berth show "+id, "process %d is already adopted, as job %s", pid, id)
	}
	if id, found := t.Running().Supervises(pid); found {
		return problem.Newf(problem.Refused, "berth show "+id, "process %d is the supervisor of job %s", pid, id)
	}
	switch id, other, found := t.Bookings().BelongsTo(pid); {
	case found && other:
		return problem.Newf(problem.Refused, "", "process %d belongs to job %s of another berth on this machine", pid, id)
	case found:
		return problem.Newf(problem.Refused, "berth show "+id, "process %d already belongs to job %s", pid, id)
	}
	if a.process.IsSupervisor() {
		return problem.Newf(problem.Refused, "", "process %d is a berth supervisor", pid)
	}
	return nil
}

// usedMiB is the memory of the process and its descendants on each card where
// they are. A driver that does not tell how much it is counts as 0.
func (a *adoption) usedMiB(occupants map[int][]gpu.Process) map[int]int64 {
	use := map[int]int64{}
	for index, processes := range occupants {
		for _, p := range processes {
			if run.Within(p.PID, a.process.Process) {
				use[index] += max(0, p.UsedMiB)
			}
		}
	}
	return use
}

// withinUse limits the request to what the process holds: its memory is in use
// anyway, everything else is what other jobs wait in line for. It drops cards on
// which the process uses so little that they still count as idle.
func (a *adoption) withinUse(use map[int]int64, occupants map[int][]gpu.Process, rules sched.Rules) error {
	pid := a.process.PID
	for _, index := range slices.Sorted(maps.Keys(use)) {
		heldMiB := sched.Budget(0, use[index], rules.SpikeBuffer)
		switch {
		case use[index] > 0 && heldMiB < rules.IdleThresholdMiB:
			delete(use, index)
		case a.spec.VRAMMiB > heldMiB:
			return problem.Newf(problem.Refused, "leave out --vram: berth reserves what the process uses, and more as it grows",
				"process %d uses %d MiB on GPU %d, and --vram asks for %d; only an administrator may reserve more than a process uses", pid, use[index], index, a.spec.VRAMMiB)
		}
	}
	for _, index := range a.request.GPUs {
		if _, used := use[index]; used {
			continue
		}
		if _, told := occupants[index]; !told {
			return problem.Newf(problem.Refused, "ask an administrator to adopt it", "berth cannot tell whether process %d uses GPU %d; only an administrator may reserve it", pid, index)
		}
		return problem.Newf(problem.Refused, "leave out --gpus: berth takes the GPUs that the process uses",
			"process %d does not use GPU %d, or less than %d MiB of it; only an administrator may reserve a GPU for later", pid, index, rules.IdleThresholdMiB)
	}
	return nil
}

// setCards completes the spec: the cards in use, those that were named, and the
// memory to hold. That is the least the process uses on any of them; on each card
// the measured use counts once it is more.
func (a *adoption) setCards(use map[int]int64, known []gpu.Device) error {
	cards := slices.Collect(maps.Keys(use))
	for _, index := range a.request.GPUs {
		if !slices.ContainsFunc(known, func(dev gpu.Device) bool { return dev.Index == index }) {
			return noCard(index, known)
		}
		cards = append(cards, index)
	}
	slices.Sort(cards)
	if cards = slices.Compact(cards); len(cards) == 0 {
		hint := "name the GPUs with --gpus 0"
		if !a.caller.Admin {
			hint = "adopt it when it uses a GPU"
		}
		return problem.Newf(problem.Refused, hint, "process %d uses none of the GPUs", a.process.PID)
	}
	for _, dev := range known {
		if slices.Contains(cards, dev.Index) && a.spec.VRAMMiB > dev.TotalMiB {
			return problem.Newf(problem.Refused, "berth gpus shows the memory of each", "GPU %d has %d MiB, less than the %d requested", dev.Index, dev.TotalMiB, a.spec.VRAMMiB)
		}
	}
	var leastMiB int64
	if used := slices.Collect(maps.Values(use)); len(used) > 0 {
		leastMiB = slices.Min(used)
	}
	a.ahead = len(cards) > len(use) || a.spec.VRAMMiB > leastMiB
	process := a.process.Process
	a.spec.Adopt, a.spec.Argv, a.spec.GPUs, a.spec.IDs, a.spec.Grace = &process, a.process.Argv, len(cards), cards, time.Second
	if a.spec.Name == "" {
		a.spec.Name = fmt.Sprintf("adopted-%d", a.process.PID)
	}
	a.job.Spec, a.job.Grant.BudgetMiB = a.spec, cmp.Or(a.spec.VRAMMiB, leastMiB)
	if len(use) > 0 {
		a.job.PeakMiB = use
	}
	return nil
}

// accept waits until the job is on disk. If two requests name one process, the
// second is refused.
func (a *adoption) accept(ctx context.Context) error {
	var refusal, unsaved error
	ran := false
	err := a.h.svc.queue.Engine.Change(ctx, func(t *engine.Turn) {
		ran = true
		j := a.job
		if t.Stopping() {
			refusal = stopping()
			return
		}
		if full := room(t, a.h.svc.Config(), a.caller, j.User, 1); full != nil {
			refusal = full
			return
		}
		if why := t.Explain().OverLimit(j.User, len(j.Spec.IDs)); why != "" && !a.caller.Admin {
			refusal = problem.Newf(problem.TooMuch, "cancel a job, or ask an administrator to adopt it; the process keeps running", "%s", why)
			return
		}
		if refusal = a.unclaimed(t); refusal != nil {
			return
		}
		t.Queue().Number([]*job.Job{j})
		t.Requests().Adopt(j, t.Cards().Occupied(j.Spec.IDs, j.Grant.BudgetMiB), func(err error) { unsaved = err })
	})
	switch {
	case refusal != nil:
		return refusal
	case !ran:
		return unlessEnded(err)
	}
	return notWritten(cmp.Or(unsaved, err))
}
