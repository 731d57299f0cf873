package batch

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// DryRun says what Run would do with each line now. It starts and writes nothing,
// and returns 1 if a job could never run here.
func DryRun(ctx context.Context, opt Options) (int, error) {
	f := newFollower(opt)
	f.voice.screen.live = false
	defer f.voice.screen.finish()
	link, err := f.open(ctx)
	if link != nil {
		defer link.Client.Close()
	}
	if err != nil {
		return 0, err
	}
	f.link = link
	reply, err := f.link.Send(ctx, f.source.file.Lines, true, true)
	if err == nil {
		err = f.source.CheckPlaces(f.source.file.Lines, begun(reply.Jobs))
	}
	if err != nil {
		return 0, err
	}
	return f.foretell(reply.Jobs), nil
}

// foretell prints a row for each line, and the sums.
func (f *follower) foretell(jobs []api.Submitted) (status int) {
	table := &text.Table{Columns: []text.Column{{Title: "LINE", Right: true}, {Title: "NAME", Shy: true}, {Title: "WOULD"}, {Title: "GPUS"}, {Title: "WHY", Shy: true}, {Title: "COMMAND"}}}
	counts, order := map[string]int{}, []string{"start", "wait", "be skipped", "never run"}
	for i, line := range f.source.file.Lines {
		would, why := prospect(line, &jobs[i])
		if counts[would]++; would == "never run" {
			status = problem.Unable.ExitStatus()
		}
		table.Row(strconv.Itoa(line.Number), line.Spec.Name, would, text.Numbers(jobs[i].GPUIDs), why, line.Spec.Command())
	}
	columns := 0
	if f.opt.Terminal {
		columns = f.opt.Width()
		table.Concessions = []text.Concession{{Title: "COMMAND", To: 20}, {Title: "NAME", To: 12}, {Title: "WHY", To: 20}}
	}
	var sums []string
	for _, would := range order {
		if n := counts[would]; n > 0 {
			sums = append(sums, fmt.Sprintf("%d would %s", n, would))
		}
	}
	f.voice.screen.finish(strings.TrimSuffix(table.Draw(columns, false), "\n"),
		fmt.Sprintf("%s in %s: %s; nothing was started", text.Count(len(jobs), "job"), f.opt.File, strings.Join(sums, ", ")))
	return status
}

// prospect is what would happen to the job of a line, and why.
func prospect(line *jobfile.Line, j *api.Submitted) (would, why string) {
	switch state := job.State(j.State); {
	case state.Terminal() && !j.Again:
		return "be skipped", "earlier: " + j.Reason
	case state == job.Running:
		return "wait", "still runs from an earlier run"
	case state == job.Parked:
		return "wait", "still parked from an earlier run"
	case line.Spec.To == job.ToSlurm && len(line.Spec.After) == 0:
		return "wait", "is handed over to Slurm"
	case j.State == "infeasible":
		return "never run", j.Reason
	case j.State == "starts":
		return "start", ""
	}
	return "wait", j.Reason
}
