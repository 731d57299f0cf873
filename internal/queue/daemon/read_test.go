package daemon

import (
	"io"
	"path/filepath"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

// TestAnEndedQueueIsRead: it answers as far as its store knows, and refuses what needs
// a process or would change it.
func TestAnEndedQueueIsRead(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ended, waits := l.one(sh("echo hello", "gpus", "0")), l.one(sh("true", "gpus", "0", "begin", "now+1h"))
	l.finished(ended)
	l.stop()
	before, err := filepath.Glob(filepath.Join(l.opt.Places.StateDir, "*"))
	testkit.Must(t, err)
	c := api.DialQueue(l.opt.Places.Socket, func() (*api.Server, func(), error) {
		return Read(Options{Places: l.opt.Places, JobsDir: filepath.Join(l.opt.Places.StateDir, "jobs"), Env: l.opt.Env}, "berth_logs")
	})
	defer c.Close()
	l.Client = c
	page, err := c.Jobs(l.ctx, api.Query{Over: true})
	if err != nil || len(page.Jobs) != 2 || page.Counts["queued"] != 1 {
		t.Errorf("its jobs are %+v, %v", page, err)
	}
	if j := l.job(ended); j.State != job.Finished || l.log(ended) != "hello\n" {
		t.Errorf("the ended job is %+v with %q", j, l.log(ended))
	}
	if text, err := l.read(api.LogQuery{ID: ended, Follow: true}); text != "hello\n" || err != nil {
		t.Errorf("its log, followed: %q, %v", text, err)
	}
	if why, err := c.Why(l.ctx, waits); err != nil || why.Text != "no berth run is working on berth_logs" {
		t.Errorf("why: %+v, %v", why, err)
	}
	if reply, err := c.Wait(l.ctx, api.WaitRequest{Select: api.Select{Words: []string{ended}}}); err != nil || !reply.Done {
		t.Errorf("wait for the ended job: %+v, %v", reply, err)
	}
	for what, ask := range map[string]func() error{
		"wait": func() error {
			_, err := c.Wait(l.ctx, api.WaitRequest{Select: api.Select{Words: []string{waits}}})
			return err
		},
		"logs -f":     func() error { _, err := l.read(api.LogQuery{ID: waits, Follow: true}); return err },
		"status":      func() error { _, err := c.Status(l.ctx); return err },
		"gpus":        func() error { _, err := c.GPUs(l.ctx); return err },
		"gpu samples": func() error { _, err := c.GPUSamples(l.ctx, 0, api.SamplesQuery{}); return err },
		"events":      func() error { return c.Events(l.ctx, api.EventQuery{}, func(api.Event) error { return nil }) },
		"attach":      func() error { _, err := c.Attach(l.ctx, ended); return err },
		"submit":      func() error { _, err := c.Submit(l.ctx, api.SubmitRequest{Jobs: []api.Spec{sh("true")}}); return err },
		"cancel": func() error {
			_, err := c.Act(l.ctx, api.ActRequest{Action: api.ActCancel, Select: api.Select{All: true}})
			return err
		},
		"edit":   func() error { _, err := c.Edit(l.ctx, waits, api.EditRequest{Unset: []string{"begin"}}); return err },
		"adopt":  func() error { _, err := c.Adopt(l.ctx, api.AdoptRequest{}); return err },
		"pause":  func() error { _, err := c.PauseGPU(l.ctx, 0, true); return err },
		"backup": func() error { return c.Backup(l.ctx, io.Discard) },
		"reload": func() error { _, err := c.Reload(l.ctx, api.ReloadRequest{}); return err },
		"token":  func() error { _, err := c.NewToken(l.ctx, api.TokenRequest{}); return err },
		"tokens": func() error { _, err := c.Tokens(l.ctx); return err },
		"revoke": func() error { return c.RevokeToken(l.ctx, "x") },
		"group":  func() error { _, err := c.SetGroup(l.ctx, "a", api.GroupRequest{}); return err },
		"notify": func() error { _, err := c.SendNotify(l.ctx, api.NotifyTest{}); return err },
	} {
		t.Run(what, func(t *testing.T) {
			wantProblem(t, ask(), problem.Unable, "no berth run is working on berth_logs", "the same berth run command continues it")
		})
	}
	for what, ask := range map[string]func() error{
		"stats":       func() error { _, err := c.Stats(l.ctx, api.StatsQuery{}); return err },
		"samples":     func() error { _, err := c.JobSamples(l.ctx, ended, api.SamplesQuery{}); return err },
		"snapshots":   func() error { _, err := c.Snapshots(l.ctx); return err },
		"groups":      func() error { _, err := c.Groups(l.ctx, api.GroupQuery{}); return err },
		"gpu history": func() error { _, err := c.CardHistory(l.ctx, api.CardQuery{}); return err },
		"strays":      func() error { _, err := c.Strays(l.ctx); return err },
		"snapshot":    func() error { _, err := c.Snapshot(l.ctx); return err },
	} {
		if err := ask(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	after, err := filepath.Glob(filepath.Join(l.opt.Places.StateDir, "*"))
	if err != nil || len(after) != len(before) {
		t.Errorf("the state directory has %v, had %v (%v)", after, before, err)
	}
}
