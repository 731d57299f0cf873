package cli

import (
	"context"
	"fmt"
	"time"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/text"
)

// listStrays shows the supervisors that the daemon's store does not know.
func listStrays(ctx context.Context, s *session.Session, asJSON bool) error {
	strays, err := api.Call(ctx, s.Client, api.ListStrays, api.None{})
	if err != nil && !s.NoJobsYet(err) {
		return err
	}
	if asJSON {
		return printJSON(s.Out, notNull(strays))
	}
	if len(strays) == 0 {
		_, err = fmt.Fprintln(s.Out, "no strays")
		return err
	}
	if err := s.Draw(strayTable(strays, time.Now())); err != nil {
		return err
	}
	_, err = fmt.Fprintln(s.Out, s.Fit("berth adopt --strays takes them back into the queue"))
	return err
}

func strayTable(strays []api.Stray, now time.Time) *text.Table {
	t := &text.Table{
		Columns: []text.Column{
			{Title: "TOKEN"}, {Title: "JOB"}, {Title: "NAME", Shy: true}, {Title: "USER", Shy: true}, {Title: "STATE"}, {Title: "GPUS"}, {Title: "PID", Right: true, Shy: true},
			{Title: "TIME", Right: true}, {Title: "COMMAND", Shy: true},
		},
		Concessions: []text.Concession{{Title: "COMMAND", To: 20}, {Title: "NAME", To: 10}, {Title: "COMMAND", To: 0}, {Title: "PID", To: 0}, {Title: "NAME", To: 0}, {Title: "USER", To: 0}},
	}
	for _, v := range strays {
		pid := ""
		if v.PID > 0 {
			pid = fmt.Sprint(v.PID)
		}
		state := v.State
		if !v.Adoptable {
			state += ", no copy"
		}
		t.Add(text.Cell{Text: v.Token}, text.Cell{Text: v.Job}, text.Cell{Text: v.Name}, text.Cell{Text: v.User}, text.Cell{Text: state},
			text.Cell{Text: text.Numbers(v.GPUs)}, text.Cell{Text: pid}, text.Cell{Text: text.Span(now.Sub(v.StartedAt))}, text.Cell{Text: v.Command})
	}
	return t
}
