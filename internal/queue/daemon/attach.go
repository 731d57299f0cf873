package daemon

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/queue/engine"
	"berth/internal/slurm/cluster"
	"berth/internal/text/problem"
)

// A job's terminal may appear a little after its start: for how long and how
// often it is looked for.
const (
	terminalAppears = 20 * time.Second
	terminalStep    = 50 * time.Millisecond
)

// terminals connects callers to the terminals of jobs.
type terminals struct {
	svc  *service
	find *finder
}

// Attach connects to a job's terminal.
func (h *terminals) Attach(ctx context.Context, c api.Caller, id string) (io.ReadWriteCloser, error) {
	j, err := h.find.Find(ctx, c, id)
	if err != nil {
		return nil, err
	}
	if !mayBe(c, &j) {
		err := notYours(c, &j)
		h.svc.Note(c, "attach", []string{j.ID}, "", err)
		return nil, err
	}
	if !j.Spec.Pty {
		return nil, problem.Newf(problem.Refused, "berth logs -f "+j.ID+" follows its output; --pty gives a job a terminal", "job %s has no terminal", j.ID)
	}
	if j.Spec.To == job.ToSlurm {
		return h.attachAway(ctx, c, &j)
	}
	conn, err := h.attach(ctx, c, &j)
	if err != nil {
		return nil, err
	}
	if err := h.svc.Change(ctx, func(t *engine.Turn) { t.Parking().Attend(j.Keep, c.Name) }); err != nil {
		conn.Close()
		return nil, err
	}
	h.svc.Note(c, "attach", []string{j.ID}, "", nil)
	return &attendance{ReadWriteCloser: conn, leave: sync.OnceFunc(func() {
		// A daemon that ends forgets it anyway.
		_ = h.svc.Do(context.Background(), func(t *engine.Turn) { t.Parking().Unattend(j.Keep) })
	})}, nil
}

// attendance is a terminal whose job has somebody attached to it.
type attendance struct {
	io.ReadWriteCloser
	leave func()
}

func (a *attendance) Close() error {
	a.leave()
	return a.ReadWriteCloser.Close()
}

// attach waits for the terminal of a job that has just been placed.
func (h *terminals) attach(ctx context.Context, c api.Caller, j *job.Job) (io.ReadWriteCloser, error) {
	for {
		if j.State != job.Running && j.State != job.Parked {
			return nil, problem.Newf(problem.Refused, "", "job %s is %s", j.ID, j.State)
		}
		conn, err := h.svc.queue.Runner.Attach(j.Keep, j.ID)
		if err == nil {
			return conn, nil
		}
		if !errors.Is(err, run.ErrNoTerminal) || time.Since(j.StartedAt) > terminalAppears {
			return nil, problem.Newf(problem.Unable, "", "the terminal of job %s cannot be reached: %v", j.ID, err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(terminalStep):
		}
		if *j, err = h.find.Find(ctx, c, j.ID); err != nil {
			return nil, err
		}
	}
}

// attachAway connects to the terminal of a job on the node of a cluster, through an
// srun that runs as the job's user.
func (h *terminals) attachAway(ctx context.Context, c api.Caller, j *job.Job) (io.ReadWriteCloser, error) {
	if j.State != job.Running {
		return nil, problem.Newf(problem.Refused, "", "job %s is %s", j.ID, j.State)
	}
	hand := h.svc.cluster.Load()
	if hand == nil {
		return nil, stopping()
	}
	user, err := h.svc.people.RunsAs(ctx, j.UID, j.User)
	var as *keep.Credential
	if err == nil {
		as, err = h.svc.people.Credential(user)
	}
	var conn io.ReadWriteCloser
	if err == nil {
		conn, err = h.svc.queue.Runner.Doors.Connect(run.Helper{
			As: as, Args: append([]string{cluster.Word}, cluster.Attachment(j.Handover)...), Env: slices.Concat(hand.Vars, []string{"HOME=" + user.Home}),
		})
	}
	if err != nil {
		return nil, problem.Newf(problem.Unable, "", "the terminal of job %s cannot be reached: %v", j.ID, err)
	}
	h.svc.Note(c, "attach", []string{j.ID}, "", nil)
	return conn, nil
}
