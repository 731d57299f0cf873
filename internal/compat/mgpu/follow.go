package mgpu

import (
	"context"
	"fmt"
	"io"
	"time"

	"berth/internal/api"
	"berth/internal/compat/frontend"
	"berth/internal/job"
	"berth/internal/problem"
)

// How long a server that went away is waited for, and how often it is asked.
const (
	longestOutage = 10 * time.Minute
	lookEvery     = 200 * time.Millisecond
	waitFor       = time.Second
)

// attach comes back to a job.
func (c call) attach(ctx context.Context, word string) int {
	id, err := idOf(word)
	if err != nil {
		c.Complain(problemOf(err))
		return frontend.BadUsage
	}
	client, err := c.dial(ctx, false)
	if err != nil {
		return c.failed(err)
	}
	defer client.Close()
	// A server that goes away later is waited for; one that was never there, or
	// does not know the job, is not.
	if _, err := client.Job(ctx, id); err != nil {
		return c.failed(err)
	}
	return c.follow(ctx, client, id)
}

// follow shows a job's output to its last line, then how it ended, and
// returns its status. Ctrl-C leaves the job alone.
func (c call) follow(ctx context.Context, client *api.Client, id string) int {
	f := follower{c: c, client: client, id: id, code: job.Code(id), queued: true}
	client.OnRetry = f.away
	over, err := f.toTheEnd(ctx)
	switch {
	case ctx.Err() != nil:
		f.endLine()
		goes := "keeps running"
		if f.queued {
			goes = "stays queued"
		}
		fmt.Fprintf(c.Err, "Detached. Job %s %s.\n", f.code, goes)
		fmt.Fprintf(c.Err, "hint: mgpu_srun --attach %s shows it again, mgpu_cancel %[1]s ends it\n", f.code)
		return frontend.Interrupted
	case err != nil:
		return c.failed(err)
	}
	status := api.ExitStatus(over)
	f.endLine()
	fmt.Fprintf(c.Err, "Job %s %s with exit code %d%s.\n", f.code, over.State, status, because(over))
	return status
}

// because is why a job did not end well, where that is more than a number.
func because(v job.View) string {
	switch {
	case v.State == job.Finished:
	case v.Reason != nil && *v.Reason != "":
		return " (" + withCodes(*v.Reason) + ")"
	case v.Outcome != nil && *v.Outcome == job.Timeout:
		return " (time limit)"
	case v.Signal != nil:
		return " (signal " + frontend.OneLine(*v.Signal) + ")"
	}
	return ""
}

// follower watches one job, through restarts of its server.
type follower struct {
	c        call
	client   *api.Client
	id, code string

	outage time.Time // since when the server does not answer; zero: it does
	told   bool
	inLine bool // the last byte shown did not end a line
	queued bool // when it was last looked at
	back   int  // attempts that were told to have ended in the queue
}

// Write shows what the job printed.
func (f *follower) Write(text []byte) (int, error) {
	if len(text) > 0 {
		f.inLine = text[len(text)-1] != '\n'
	}
	return f.c.Out.Write(text)
}

// endLine keeps words of this program's off the job's last line, and adds
// nothing to what the job printed.
func (f *follower) endLine() {
	if f.inLine {
		fmt.Fprintln(f.c.Err)
	}
	f.inLine = false
}

// tellBack says why output begins anew: once for each attempt that was shown
// and is not the last.
func (f *follower) tellBack(shown int, detail api.Detail) {
	if shown > f.back && (detail.State == job.Queued || detail.Attempt > shown) {
		f.back = shown
		f.endLine()
		fmt.Fprintf(f.c.Err, "Job %s was stopped and moved to the end of the queue; it begins anew.\n", f.code)
	}
}

// away is heard of a server that is gone.
func (f *follower) away(error) {
	if !f.told {
		f.told = true
		fmt.Fprintf(f.c.Err, "%s: the server does not answer; waiting for it to come back\n", f.c.Name)
	}
}

// bear waits a moment after an error that a restart of the server explains,
// and hands back every other one.
func (f *follower) bear(ctx context.Context, err error) error {
	if kind := problem.KindOf(err); ctx.Err() != nil || kind != "" && kind != problem.Unable {
		return err
	}
	if f.outage.IsZero() {
		f.outage = time.Now()
	}
	if time.Since(f.outage) > longestOutage {
		return err
	}
	f.away(err)
	return api.Pause(ctx, lookEvery)
}

// toTheEnd copies attempt after attempt: a job that reached its time limit
// goes back to the queue, and on from there.
func (f *follower) toTheEnd(ctx context.Context) (job.View, error) {
	for shown := 0; ; {
		detail, err := f.client.Job(ctx, f.id)
		if err != nil {
			if err := f.bear(ctx, err); err != nil {
				return job.View{}, err
			}
			continue
		}
		f.outage, f.told, f.queued = time.Time{}, false, detail.State == job.Queued
		f.tellBack(shown, detail)
		switch {
		case detail.Attempt > shown:
			if err := f.show(ctx, shown+1); err != nil {
				return job.View{}, err
			}
			shown++
		case detail.State.Terminal():
			return detail.View, nil
		default:
			// It waits for its turn, or its last processes are ending.
			if err := f.pause(ctx, detail); err != nil {
				return job.View{}, err
			}
		}
	}
}

// show copies what one attempt prints, until it is over.
func (f *follower) show(ctx context.Context, attempt int) error {
	for {
		log, err := f.client.Log(ctx, api.LogQuery{ID: f.id, Attempt: attempt, Follow: true})
		if err == nil {
			_, err = io.Copy(f, log)
			_ = log.Close() // it has been read
			return err
		}
		if kind := problem.KindOf(err); kind == problem.Refused || kind == problem.NotFound {
			return nil // an attempt that never came to print; its end says why
		}
		if err := f.bear(ctx, err); err != nil {
			return err
		}
	}
}

// pause lets a moment pass, or less if the job ends in it.
func (f *follower) pause(ctx context.Context, detail api.Detail) error {
	if detail.State == job.Queued {
		return api.Pause(ctx, lookEvery) // its start is not an end to wait for
	}
	_, err := f.client.Wait(ctx, api.WaitRequest{Select: api.Select{Words: []string{f.id}}, TimeoutS: waitFor.Seconds()})
	if err != nil {
		return f.bear(ctx, err)
	}
	return nil
}
