package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"berth/internal/api"
	"berth/internal/engine"
	"berth/internal/gpu"
	"berth/internal/job"
	"berth/internal/jobfile"
	"berth/internal/problem"
	"berth/internal/run"
)

// Adopt makes a job that represents a process berth did not start. berth
// accounts for the process and leaves it alone.
func (d *Daemon) Adopt(ctx context.Context, c api.Caller, r api.AdoptRequest) (api.Detail, error) {
	a := adoption{d: d, caller: c, request: r}
	err := a.run(ctx)
	var jobs []string
	if a.job != nil && a.job.ID != "" && err == nil {
		jobs = []string{a.job.ID}
	}
	d.note(c, "adopt", jobs, fmt.Sprintf("process %d", r.PID), err)
	if err != nil {
		return api.Detail{}, err
	}
	return d.Job(ctx, c, a.job.ID)
}

// adoption is a request in progress.
type adoption struct {
	d       *Daemon
	caller  api.Caller
	request api.AdoptRequest

	process run.External
	spec    job.Spec
	job     *job.Job
	// ahead means that the request asks for more than the process uses now. Such
	// a job takes room from others that a queued job would have to wait for.
	ahead bool
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
	p, d := &a.process, a.d
	switch {
	case p.Kernel:
		return problem.Newf(problem.Refused, "", "process %d is a kernel thread (%s)", p.PID, p.Name)
	case p.Leader != p.PID:
		return problem.Newf(problem.Invalid, fmt.Sprintf("berth adopt %d", p.Leader), "%d is a thread of process %d", p.PID, p.Leader)
	}
	theirs := p.UID == a.caller.UID || a.caller.Admin
	if !d.opt.Places.Shared {
		// A private daemon has one user, and all its jobs run as that user.
		theirs = p.UID == d.uid
	}
	owner := d.userName(p.UID)
	if user, err := d.users.ByUID(ctx, p.UID); err == nil {
		owner = user.Name
	} else if theirs && d.opt.Places.Shared {
		return problem.Newf(problem.Unable, "ask the administrator to check the user database (getent passwd)", "process %d belongs to uid %d, which cannot be looked up", p.PID, p.UID)
	}
	if !theirs {
		hint := "its owner can adopt it, and so can root and the admin group"
		if !d.opt.Places.Shared {
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
	return a.d.lookAgain(ctx, func(t *engine.Turn) bool {
		at, _ := t.ReadAt()
		return !at.Before(begun)
	}, lookTime)
}

// check makes sure that berth does not own the process already, and finds its
// cards.
func (a *adoption) check(ctx context.Context) error {
	var occupants map[int][]gpu.Process
	var known []gpu.Device
	var refusal error
	err := a.d.do(ctx, func(t *engine.Turn) {
		if _, trouble := t.ReadAt(); trouble != nil {
			refusal = problem.Newf(problem.Unable, "try again when berth gpus shows them", "the GPUs cannot be read, so berth cannot tell which of them the process uses: %v", trouble)
			return
		}
		occupants, known = unowned(t.Occupants(), t.OwnerOf), t.Devices()
		refusal = a.unclaimed(t)
	})
	if err = errors.Join(err, refusal); err != nil {
		return err
	}
	return a.setCards(occupants, known)
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
	if id, found := t.Adopted(a.process.Process); found {
		return problem.Newf(problem.Refused, "berth show "+id, "process %d is already adopted, as job %s", pid, id)
	}
	if id, found := t.Supervises(pid); found {
		return problem.Newf(problem.Refused, "berth show "+id, "process %d is the supervisor of job %s", pid, id)
	}
	switch id, other, found := t.BelongsTo(pid); {
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

// setCards completes the spec: the cards that the process or its descendants
// use, those that were named, and the memory to hold.
func (a *adoption) setCards(occupants map[int][]gpu.Process, known []gpu.Device) error {
	var cards []int
	var mostMiB int64
	for index, processes := range occupants {
		var usedMiB int64
		for _, p := range processes {
			if run.Within(p.PID, a.process.Process) {
				usedMiB += max(0, p.UsedMiB)
				cards = append(cards, index)
			}
		}
		mostMiB = max(mostMiB, usedMiB)
	}
	a.ahead = a.spec.VRAMMiB > mostMiB
	for _, index := range a.request.GPUs {
		if !slices.ContainsFunc(known, func(dev gpu.Device) bool { return dev.Index == index }) {
			return noCard(index, known)
		}
		a.ahead = a.ahead || !slices.Contains(cards, index)
		cards = append(cards, index)
	}
	slices.Sort(cards)
	if cards = slices.Compact(cards); len(cards) == 0 {
		return problem.Newf(problem.Refused, "name the GPUs with --gpus 0", "process %d uses none of the GPUs", a.process.PID)
	}
	for _, dev := range known {
		if slices.Contains(cards, dev.Index) && a.spec.VRAMMiB > dev.TotalMiB {
			return problem.Newf(problem.Refused, "berth gpus shows the memory of each", "GPU %d has %d MiB, less than the %d requested", dev.Index, dev.TotalMiB, a.spec.VRAMMiB)
		}
	}
	process := a.process.Process
	a.spec.Adopt, a.spec.Argv, a.spec.GPUs, a.spec.IDs, a.spec.Grace = &process, a.process.Argv, len(cards), cards, time.Second
	if a.spec.Name == "" {
		a.spec.Name = fmt.Sprintf("adopted-%d", a.process.PID)
	}
	a.job.Spec, a.job.Grant.BudgetMiB = a.spec, mostMiB
	return nil
}

// accept waits until the job is on disk. If two requests name one process, the
// second is refused.
func (a *adoption) accept(ctx context.Context) error {
	written := make(chan error, 1)
	var refusal error
	err := a.d.do(ctx, func(t *engine.Turn) {
		j := a.job
		if t.Stopping() {
			refusal = stopping()
			return
		}
		if full := a.d.room(t, a.d.config(), a.caller, j.User, 1); full != nil {
			refusal = full
			return
		}
		if why := t.OverLimit(j.User, len(j.Spec.IDs)); why != "" && a.ahead && !a.caller.Admin {
			refusal = problem.Newf(problem.TooMuch, "leave out --gpus and --vram: what the process uses now is never refused", "%s", why)
			return
		}
		if refusal = a.unclaimed(t); refusal != nil {
			return
		}
		t.Number([]*job.Job{j})
		j.Rank = j.Seq
		budgetMiB := j.Spec.VRAMMiB
		if budgetMiB == 0 {
			budgetMiB = j.Grant.BudgetMiB
		}
		t.Adopt(j, t.Occupied(j.Spec.IDs, budgetMiB), func(err error) { written <- err })
	})
	if err = errors.Join(err, refusal); err != nil {
		return err
	}
	select {
	case err = <-written:
	case <-a.d.ended:
		select {
		case err = <-written:
		default:
			err = stopping()
		}
	}
	return notWritten(err)
}
