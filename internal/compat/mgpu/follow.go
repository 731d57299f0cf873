package mgpu

import (
	"context"
	"fmt"
	"io"
	"time"

	"berth/internal/api"
	"berth/internal/compat/frontend"
	"berth/internal/job"
	"berth/internal/text/problem"
)

// How long to wait for a server that is restarting, and how often to ask it.
const (
	longestOutage = 10 * time.Minute
	lookEvery     = 200 * time.Millisecond
	waitFor       = time.Second
)

// attach shows the output of a job submitted earlier.
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
	// Only a server that has answered once is waited for.
	detail, err := api.Call(ctx, client, api.GetJob, api.JobID{ID: id})
	if err == nil {
		err = detail.One()
	}
	if err != nil {
		return c.failed(err)
	}
	return c.follow(ctx, client, id)
}

// follow shows a job's output to the last line, then how it ended, and returns
// its status. Ctrl-C leaves the job running.
func (c call) follow(ctx context.Context, client *api.Client, id string) int {
	f := follower{c: c, client: client, id: id, code: job.Code(id), queued: true}
	client.OnRetry = f.away
	ended, err := f.toTheEnd(ctx)
	switch {
	case ctx.Err() != nil:
		f.endLine()
		goes := "keeps running"
		if f.queued {
			goes = "stays queued"
		}
		fmt.Fprintf(c.Err, "Detached. Job %s %s.\n", f.code, goes)
		fmt.Fprintf(c.Err, "hint: mgpu_srun --attach %s shows its output, mgpu_cancel %[1]s cancels it\n", f.code)
		return frontend.Interrupted
	case err != nil:
		return c.failed(err)
	}
	status := api.ExitStatus(ended)
	f.endLine()
	fmt.Fprintf(c.Err, "Job %s completed with exit code %d%s\n", f.code, status, because(ended))
	return status
}

// because is why a job failed, where that is more than an exit code.
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

	outage   time.Time // since when the server does not answer; zero: it does
	reported bool      // the outage was reported
	inLine   bool      // the last byte shown did not end a line
	queued   bool      // at the last look
	requeued int       // the last attempt whose requeue was reported
}

// Write shows output of the job.
func (f *follower) Write(text []byte) (int, error) {
	if len(text) > 0 {
		f.inLine = text[len(text)-1] != '\n'
	}
	return f.c.Out.Write(text)
}

// endLine keeps this program's messages off the job's last line without adding
// to the job's own output.
func (f *follower) endLine() {
	if f.inLine {
		fmt.Fprintln(f.c.Err)
	}
	f.inLine = false
}

// reportRequeue says why output starts over, once for each attempt that was
// shown and is not the last.
func (f *follower) reportRequeue(shown int, detail api.Detail) {
	if shown > f.requeued && (detail.State == job.Queued || detail.Attempt > shown) {
		f.requeued = shown
		f.endLine()
		fmt.Fprintf(f.c.Err, "Job %s was stopped and moved to the end of the queue; it starts over.\n", f.code)
	}
}

// away reports, once, that the server does not answer.
func (f *follower) away(error) {
	if !f.reported {
		f.reported = true
		fmt.Fprintf(f.c.Err, "%s: the server does not answer; waiting for it to come back\n", f.c.Name)
	}
}

// tolerate waits a moment after an error that a restart of the server explains,
// and returns any other error.
func (f *follower) tolerate(ctx context.Context, err error) error {
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

// toTheEnd shows one attempt after another: a job that reached its time limit
// is requeued.
func (f *follower) toTheEnd(ctx context.Context) (job.View, error) {
	for shown := 0; ; {
		detail, err := api.Call(ctx, f.client, api.GetJob, api.JobID{ID: f.id})
		if err != nil {
			if err := f.tolerate(ctx, err); err != nil {
				return job.View{}, err
			}
			continue
		}
		f.outage, f.reported, f.queued = time.Time{}, false, detail.State == job.Queued
		f.reportRequeue(shown, detail)
		switch {
		case detail.Attempt > shown:
			if err := f.show(ctx, shown+1); err != nil {
				return job.View{}, err
			}
			shown++
		case detail.State.Terminal():
			return detail.View, nil
		default:
			// It is queued, or its last processes are ending.
			if err := f.pause(ctx, detail); err != nil {
				return job.View{}, err
			}
		}
	}
}

// show copies the output of one attempt until it ends.
func (f *follower) show(ctx context.Context, attempt int) error {
	for {
		log, err := f.client.Log(ctx, api.LogQuery{ID: f.id, Attempt: attempt, Follow: true})
		if err == nil {
			_, err = io.Copy(f, log)
			_ = log.Close() // it has been read
			return err
		}
		if kind := problem.KindOf(err); kind == problem.Refused || kind == problem.NotFound {
			return nil // the attempt has no log; its end says why
		}
		if err := f.tolerate(ctx, err); err != nil {
			return err
		}
	}
}

// pause waits a moment, or until the job ends.
func (f *follower) pause(ctx context.Context, detail api.Detail) error {
	if detail.State == job.Queued {
		return api.Pause(ctx, lookEvery) // Wait is for ends, not starts
	}
	_, err := api.Call(ctx, f.client, api.WaitForJobs, api.WaitRequest{Select: api.Select{Words: []string{f.id}}, TimeoutS: waitFor.Seconds()})
	if err != nil {
		return f.tolerate(ctx, err)
	}
	return nil
}
