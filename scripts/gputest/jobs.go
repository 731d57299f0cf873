package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/job"
)

// card is a GPU as berth reports it.
type card struct{ api.GPU }

func (d *daemon) cards(ctx context.Context) ([]card, error) {
	var cards []card
	return cards, d.get(ctx, "/v1/gpus", &cards)
}

// card is the one of this run.
func (d *daemon) card(ctx context.Context) (card, error) {
	cards, err := d.cards(ctx)
	if err != nil {
		return card{}, err
	}
	for _, c := range cards {
		if c.UUID == d.t.Card.UUID || d.t.Sim {
			return c, nil
		}
	}
	return card{}, fmt.Errorf("berth does not show GPU %s", d.t.Card.UUID)
}

// of is what a job uses of the GPU now, and its peak; -1: unknown.
func (c card) of(id string) (now, peak int64) {
	for _, j := range c.Jobs {
		if j.ID == id {
			now, peak = -1, -1
			if j.UsedMiB != nil {
				now = *j.UsedMiB
			}
			if j.PeakMiB != nil {
				peak = *j.PeakMiB
			}
			return now, peak
		}
	}
	return -1, -1
}

// submit submits a job, as a user would.
func (d *daemon) submit(ctx context.Context, words []string, flags ...string) (string, error) {
	args := append([]string{"submit", "--json", "--time", "5m", "--grace", "1s", "--chdir", "/tmp"}, flags...)
	text, err := d.berth(ctx, append(append(args, "--"), words...)...)
	if err != nil {
		return "", err
	}
	var reply struct{ ID string }
	if err := json.Unmarshal([]byte(text), &reply); err != nil || reply.ID == "" {
		return "", fmt.Errorf("berth submit printed %.200q", text)
	}
	return reply.ID, nil
}

// run submits a GPU program.
func (d *daemon) run(ctx context.Context, p program, flags ...string) (string, error) {
	words, err := p.words(d.t.host)
	if err != nil {
		return "", err
	}
	return d.submit(ctx, words, flags...)
}

func (d *daemon) job(ctx context.Context, id string) (api.Detail, error) {
	return api.Call(ctx, d.client, api.GetJob, api.JobID{ID: id})
}

// log is the job's output so far.
func (d *daemon) log(ctx context.Context, id string) string {
	reader, err := d.client.Log(ctx, api.LogQuery{ID: id})
	if err != nil {
		return ""
	}
	defer reader.Close()
	text, _ := io.ReadAll(io.LimitReader(reader, 1<<20))
	return string(text)
}

// ended waits until jobs have ended.
func (d *daemon) ended(ctx context.Context, ids ...string) ([]api.Detail, error) {
	details := make([]api.Detail, len(ids))
	for i, id := range ids {
		err := poll(ctx, 50*time.Millisecond, "job "+id+" to end", func() (bool, error) {
			var err error
			details[i], err = d.job(ctx, id)
			return err == nil && over(details[i].State), err
		})
		if err != nil {
			return nil, err
		}
	}
	return details, nil
}

func over(s job.State) bool { return s == job.Finished || s == job.Failed || s == job.Cancelled }

// outcome is how a job ended, with its reason.
func outcome(v api.Detail) string {
	text := string(v.State)
	if v.Outcome != nil {
		text = string(*v.Outcome)
	}
	return text
}

// explain describes a job in one phrase, for a failure.
func (d *daemon) explain(ctx context.Context, v api.Detail) string {
	text := fmt.Sprintf("job %s (%s) is %s", v.ID, v.Name, outcome(v))
	if v.Reason != nil {
		text += ": " + *v.Reason
	}
	if lines := strings.TrimSpace(d.log(ctx, v.ID)); lines != "" {
		text += fmt.Sprintf("; it printed …%s", lines[max(0, len(lines)-300):])
	}
	return text
}

// allWell expects jobs to end ok.
func (d *daemon) allWell(ctx context.Context, ids ...string) ([]api.Detail, error) {
	details, err := d.ended(ctx, ids...)
	for _, v := range details {
		d.t.expect(outcome(v) == "ok", "%s", d.explain(ctx, v))
	}
	return details, err
}

// ready waits until the program of each job reports that it holds its memory.
func (d *daemon) ready(ctx context.Context, ids ...string) error {
	for _, id := range ids {
		err := poll(ctx, 50*time.Millisecond, "job "+id+" to hold its memory", func() (bool, error) {
			v, err := d.job(ctx, id)
			if err != nil {
				return false, err
			}
			if over(v.State) {
				return false, fmt.Errorf("ended too early: %s", d.explain(ctx, v))
			}
			if v.State != job.Running {
				return false, nil
			}
			if d.t.Sim {
				c, err := d.card(ctx)
				_, peak := c.of(id)
				return peak > 0, err
			}
			_, said := d.said(ctx, id, "ready")
			return said, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// said looks for a line "word value…" of the programs in a job's log.
func (d *daemon) said(ctx context.Context, id, word string) (string, bool) {
	for line := range strings.Lines(d.log(ctx, id)) {
		if rest, found := strings.CutPrefix(line, "gpu-test: "+word); found {
			return strings.TrimSpace(rest), true
		}
	}
	return "", false
}

func (d *daemon) saidNumber(ctx context.Context, id, word string) (int64, bool) {
	text, found := d.said(ctx, id, word)
	n, err := strconv.ParseInt(text, 10, 64)
	return n, found && err == nil
}

// processes are those of a job, by the token that only its processes have.
func (d *daemon) processes(v api.Detail) []int {
	return slices.DeleteFunc(holding("BERTH_JOB_ID="+v.ID+"\x00"), func(pid int) bool {
		return !strings.Contains(readProc(pid, "environ"), "GPU_TEST_MARK="+d.t.mark)
	})
}

// supervisor is the process that holds a job.
func (d *daemon) supervisor(v api.Detail) (int, error) {
	for _, pid := range d.processes(v) {
		for up := parentOf(pid); up > 1; up = parentOf(up) {
			if commOf(up) == "berth-keep" {
				return up, nil
			}
		}
	}
	return 0, fmt.Errorf("no supervisor found for job %s", v.ID)
}
