package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/internal/api"
	"berth/internal/job"
)

// packing: two that fit together, and one that fits with neither.
func packing(ctx context.Context, t *trial) {
	d := must(t.onCard(ctx))
	part := t.slice(0.4, 1<<30)
	uses := part*9/10 - 1024
	hold := 8 * time.Second
	if t.Sim {
		hold = 4 * time.Second
	}
	var ids []string
	for _, name := range []string{"first", "second", "third"} {
		id := must(d.run(ctx, program{with: t.usual(), mib: uses, hold: hold, compute: true}, vram(part), "--name", name))
		ids = append(ids, id)
	}
	need(d.ready(ctx, ids[:2]...))
	third := must(d.job(ctx, ids[2]))
	why := must(d.berth(ctx, "why", ids[2]))
	t.expect(third.State == job.Queued, "the third job is %s while the GPU is full", third.State)
	t.expect(strings.Contains(why, strconv.FormatInt(part, 10)), "berth why says %q, without the %d MiB it needs", strings.TrimSpace(why), part)
	d.bothRead(ctx, part, uses)
	t.seen("the third: %s", strings.TrimSpace(why))
	ends := must(d.allWell(ctx, ids...))
	first, last := ends[0], ends[2]
	t.expect(!last.StartedAt.Before(*first.EndedAt) || !last.StartedAt.Before(*ends[1].EndedAt), "the third job started before one of the others ended")
}

// bothRead waits until berth has read the memory of two jobs.
func (d *daemon) bothRead(ctx context.Context, part, uses int64) {
	inUse := int64(0)
	err := pollFor(ctx, 5*time.Second, "both jobs' memory to be read", func() (bool, error) {
		c, err := d.card(ctx)
		inUse = c.UsedMiB
		return inUse >= 2*uses, err
	})
	if err != nil {
		need(fmt.Errorf("%w: %d MiB in use", err, inUse))
	}
	d.t.seen("two jobs of %d MiB side by side: %d of %d MiB in use", part, inUse, d.t.Card.TotalMiB)
}

// launchRace: ten jobs at once, a quarter of the GPU each. A program takes
// seconds to allocate its memory, which must not be allocated to another job
// in the meantime.
func launchRace(ctx context.Context, t *trial) {
	d := must(t.onCard(ctx))
	const jobs = 10
	part := t.slice(0.235, 1<<30)
	const hold = 2 * time.Second
	ids := make([]string, jobs)
	problems := make([]error, jobs)
	var group sync.WaitGroup
	for i := range jobs {
		group.Go(func() {
			ids[i], problems[i] = d.run(ctx, program{with: t.usual(), mib: part - 1200, hold: hold}, vram(part))
		})
	}
	group.Wait()
	for _, err := range problems {
		need(err)
	}
	most := must(d.mostAtOnce(ctx, jobs))
	ends := must(d.allWell(ctx, ids...))
	fit := int(t.Card.FreeMiB / part)
	t.expect(most <= fit, "%d jobs of %d MiB ran at once on %d MiB", most, part, t.Card.FreeMiB)
	t.expect(most >= min(fit, 3), "only %d jobs ran at once, %d fit", most, fit)
	took := ends[0].EndedAt.Sub(*ends[0].SubmittedAt)
	for _, v := range ends {
		took = max(took, v.EndedAt.Sub(*ends[0].SubmittedAt))
	}
	t.seen("ten jobs of %d MiB: at most %d at once, all done after %.0f s, none out of memory", part, most, took.Seconds())
}

// mostAtOnce watches until that many jobs have ended, and counts those that
// run.
func (d *daemon) mostAtOnce(ctx context.Context, jobs int) (int, error) {
	most := 0
	err := poll(ctx, 50*time.Millisecond, "ten jobs to end", func() (bool, error) {
		status, err := api.Call(ctx, d.client, api.GetStatus, api.None{})
		if err != nil {
			return false, err
		}
		most = max(most, status.Counts["running"])
		return status.Counts["running"]+status.Counts["queued"] == 0, nil
	})
	return most, err
}

// oom: a job that needs more than it declared, on a GPU where a neighbour
// holds the rest.
func oom(ctx context.Context, t *trial) {
	d := must(t.onCard(ctx))
	var words []string
	declared := t.slice(0.1, 4000)
	if t.Sim {
		words = []string{t.program("berth"), "simjob", "--vram", fmt.Sprint(declared - 500), "--hold", "0.3", "--oom-once", t.dir + "/once"}
	} else {
		words = must(program{with: t.usual(), mib: t.Card.TotalMiB + 4096}.words(t.host))
	}
	id := must(d.submit(ctx, words, vram(declared), "--retries", "1", "--name", "greedy"))
	ends := must(d.ended(ctx, id))
	end := ends[0]
	want := "oom"
	if t.Sim {
		want = "ok" // the second attempt succeeds
	}
	t.expect(outcome(end) == want, "it should be %s: %s", want, d.explain(ctx, end))
	t.expect(end.Attempt == 2 && end.RetriesUsed == 1, "%d attempts, %d retries used", end.Attempt, end.RetriesUsed)
	raised := int64(0)
	if end.VRAMMiB != nil {
		raised = *end.VRAMMiB
	}
	least := (declared*5 + 3) / 4
	t.expect(raised >= least, "the second attempt declared %d MiB, expected at least %d (1.25 times %d)", raised, least, declared)
	told := false
	for _, event := range end.Events {
		told = told || strings.Contains(strings.ToLower(string(event.Kind)+" "+event.Text), "retry")
	}
	t.expect(told, "the job's events do not include the retry")
	t.seen("declared %d MiB, out of memory, again with %d, outcome %s", declared, raised, outcome(end))
}
