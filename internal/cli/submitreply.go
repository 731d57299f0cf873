package cli

import (
	"context"
	"fmt"
	"strings"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/job"
	"berth/internal/text"
)

// send submits the jobs with copies of their code, and starts a private daemon
// first if none is running.
func (o *submitOptions) send(ctx context.Context, s *session.Session, code *codeSnapshots) (api.SubmitReply, error) {
	s.StartsAnew, s.NeverStarts = true, o.noAutostart
	if err := simulateGPUs(ctx, s, o.sim); err != nil {
		return api.SubmitReply{}, err
	}
	return code.submit(ctx, o.noSnapshot)
}

// confirm reports the ids of the jobs.
func (o *submitOptions) confirm(s *session.Session, reply *api.SubmitReply) error {
	jobs := reply.Jobs
	sayNotes(s, jobs)
	switch {
	case o.json && len(jobs) == 1:
		return printJSON(s.Out, jobs[0])
	case o.json:
		return printJSON(s.Out, jobs)
	case o.quiet && o.interactive:
		return nil // standard output is the job's
	case o.quiet:
		var b strings.Builder
		for _, j := range jobs {
			b.WriteString(text.Line(j.ID) + "\n")
		}
		_, err := fmt.Fprint(s.Out, b.String())
		return err
	}
	out := s.Out
	if o.interactive {
		out = s.ErrOut // standard output is the job's
	}
	said := submittedText(jobs)
	if o.batch != nil {
		said = batchText(o.source, reply)
	}
	_, err := fmt.Fprintln(out, text.Line(said))
	return err
}

// sayNotes prints the daemon's notes, each once with the jobs it is about.
func sayNotes(s *session.Session, jobs []api.Submitted) {
	var notes []string
	about := map[string][]string{}
	for _, j := range jobs {
		for _, note := range j.Notes {
			if about[note] == nil {
				notes = append(notes, note)
			}
			about[note] = append(about[note], j.ID)
		}
	}
	for i, note := range notes {
		if i == listedOneByOne {
			s.Say("and %s more", text.CountGrouped(len(notes)-i, "note"))
			return
		}
		ids := idRuns(about[note])
		if len(ids) > listedOneByOne {
			ids = append(ids[:listedOneByOne], "…")
		}
		word := "job"
		if len(about[note]) > 1 {
			word = "jobs"
		}
		s.Say("note: %s %s: %s", word, strings.Join(ids, ","), note)
	}
}

// submittedText is "submitted job 17", "submitted jobs 17-20" or "submitted
// array 17 (100 tasks)".
func submittedText(jobs []api.Submitted) string {
	if len(jobs) == 1 && jobs[0].Tasks > 0 {
		return fmt.Sprintf("submitted array %s (%s)", jobs[0].ID, text.CountGrouped(jobs[0].Tasks, "task"))
	}
	if len(jobs) == 1 {
		return "submitted job " + jobs[0].ID
	}
	var parts, run []string
	flush := func() {
		parts = append(parts, idRuns(run)...)
		run = nil
	}
	for _, j := range jobs {
		if j.Tasks == 0 {
			run = append(run, j.ID)
			continue
		}
		flush()
		parts = append(parts, fmt.Sprintf("%s (%s)", j.ID, text.CountGrouped(j.Tasks, "task")))
	}
	flush()
	if len(parts) > listedOneByOne {
		return fmt.Sprintf("submitted %s, %s to %s", text.CountGrouped(len(jobs), "job"), jobs[0].ID, jobs[len(jobs)-1].ID)
	}
	return "submitted jobs " + strings.Join(parts, ", ")
}

// foretell is --dry-run: it says what would happen to each job, and why. A job
// that can never run here counts as refused.
func (o *submitOptions) foretell(s *session.Session, jobs []api.Submitted) error {
	var verdict error
	for _, j := range jobs {
		if j.State == foretoldInfeasible {
			verdict = session.ExitFailed
		}
	}
	if o.json {
		var value any = jobs
		if len(jobs) == 1 {
			value = jobs[0]
		}
		if err := printJSON(s.Out, value); err != nil {
			return err
		}
		return verdict
	}
	for i, j := range jobs {
		if i == listedOneByOne {
			fmt.Fprintf(s.Out, "and %s more\n", text.CountGrouped(len(jobs)-i, "job"))
			break
		}
		fmt.Fprintln(s.Out, text.Line(foretold(j)))
		if j.Request != "" { // an older daemon does not say it
			fmt.Fprintln(s.Out, text.Line("  asks for "+j.Request))
		}
		for _, note := range j.Notes {
			s.Say("note: %s", note)
		}
	}
	return verdict
}

// The states of a dry run.
const (
	foretoldStarts     = "starts"
	foretoldInfeasible = "infeasible"
)

func foretold(j api.Submitted) string {
	what := "would wait"
	switch {
	case job.State(j.State).Terminal() && !j.Again:
		what = "would not run again"
	case job.State(j.State) == job.Running, job.State(j.State) == job.Parked:
		what = "is " + j.State
	case j.State == foretoldInfeasible:
		what = "cannot run on this machine"
	case j.State == foretoldStarts && len(j.GPUIDs) > 0:
		what = "would start now on gpu " + text.Numbers(j.GPUIDs)
	case j.State == foretoldStarts:
		what = "would start now"
	}
	if j.Name != "" {
		what = j.Name + ": " + what
	}
	if j.Tasks > 0 {
		what += fmt.Sprintf(" (array of %s)", text.CountGrouped(j.Tasks, "task"))
	}
	if j.Reason != "" {
		what += ": " + j.Reason
	}
	return what
}
