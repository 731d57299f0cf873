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
	const nobody = "no berth run is working on berth_logs"
	page, err := api.Call(l.ctx, c, api.ListJobs, api.Query{Over: true, Reasons: true})
	if err != nil || len(page.Jobs) != 2 || page.Counts["queued"] != 1 {
		t.Errorf("its jobs are %+v, %v", page, err)
	}
	for _, j := range page.Jobs {
		if j.ID == waits && (j.Reason == nil || *j.Reason != nobody) {
			t.Errorf("the job that waits is %+v", j)
		}
	}
	if j := l.job(ended); j.State != job.Finished || l.log(ended) != "hello\n" {
		t.Errorf("the ended job is %+v with %q", j, l.log(ended))
	}
	if text, err := l.read(api.LogQuery{ID: ended, Follow: true}); text != "hello\n" || err != nil {
		t.Errorf("its log, followed: %q, %v", text, err)
	}
	if why, err := api.Call(l.ctx, c, api.GetWhy, api.JobID{ID: waits}); err != nil || why.Text != nobody {
		t.Errorf("why: %+v, %v", why, err)
	}
	if reply, err := api.Call(l.ctx, c, api.WaitForJobs, api.WaitRequest{Select: api.Select{Words: []string{ended}}}); err != nil || !reply.Done {
		t.Errorf("wait for the ended job: %+v, %v", reply, err)
	}
	for what, ask := range map[string]func() error{
		"wait": func() error {
			_, err := api.Call(l.ctx, c, api.WaitForJobs, api.WaitRequest{Select: api.Select{Words: []string{waits}}})
			return err
		},
		"logs -f": func() error { _, err := l.read(api.LogQuery{ID: waits, Follow: true}); return err },
		"status":  func() error { _, err := api.Call(l.ctx, c, api.GetStatus, api.None{}); return err },
		"gpus":    func() error { _, err := api.Call(l.ctx, c, api.ListGPUs, api.None{}); return err },
		"gpu samples": func() error {
			_, err := api.Call(l.ctx, c, api.GetGPUSamples, api.GPUSamplesQuery{GPUIndex: api.GPUIndex{Index: 0}})
			return err
		},
		"events": func() error { return c.Events(l.ctx, api.EventQuery{}, func(api.Event) error { return nil }) },
		"attach": func() error { _, err := c.Attach(l.ctx, ended); return err },
		"submit": func() error {
			_, err := api.Call(l.ctx, c, api.Submit, api.SubmitRequest{Jobs: []api.Spec{sh("true")}})
			return err
		},
		"cancel": func() error {
			_, err := api.Call(l.ctx, c, api.Act, api.ActRequest{Action: api.ActCancel, Select: api.Select{All: true}})
			return err
		},
		"edit": func() error {
			_, err := api.Call(l.ctx, c, api.EditJob, api.EditRequest{JobID: api.JobID{ID: waits}, Unset: []string{"begin"}})
			return err
		},
		"adopt":  func() error { _, err := api.Call(l.ctx, c, api.Adopt, api.AdoptRequest{}); return err },
		"pause":  func() error { _, err := api.Call(l.ctx, c, api.PauseGPU, api.GPUIndex{Index: 0}); return err },
		"backup": func() error { return c.Backup(l.ctx, io.Discard) },
		"reload": func() error { _, err := api.Call(l.ctx, c, api.Reload, api.ReloadRequest{}); return err },
		"token":  func() error { _, err := api.Call(l.ctx, c, api.NewToken, api.TokenRequest{}); return err },
		"tokens": func() error { _, err := api.Call(l.ctx, c, api.ListTokens, api.None{}); return err },
		"revoke": func() error { return api.Do(l.ctx, c, api.RevokeToken, api.TokenID{ID: "x"}) },
		"group": func() error {
			_, err := api.Call(l.ctx, c, api.SetGroup, api.GroupRequest{GroupName: api.GroupName{Name: "a"}})
			return err
		},
		"notify": func() error { _, err := api.Call(l.ctx, c, api.SendNotify, api.NotifyTest{}); return err },
	} {
		t.Run(what, func(t *testing.T) {
			wantProblem(t, ask(), problem.Unable, nobody, "the same berth run command continues it")
		})
	}
	for what, ask := range map[string]func() error{
		"stats": func() error { _, err := api.Call(l.ctx, c, api.GetStats, api.StatsQuery{}); return err },
		"samples": func() error {
			_, err := api.Call(l.ctx, c, api.GetJobSamples, api.JobSamplesQuery{JobID: api.JobID{ID: ended}})
			return err
		},
		"snapshots":   func() error { _, err := api.Call(l.ctx, c, api.ListSnapshots, api.None{}); return err },
		"groups":      func() error { _, err := api.Call(l.ctx, c, api.ListGroups, api.GroupQuery{}); return err },
		"gpu history": func() error { _, err := api.Call(l.ctx, c, api.ListCardEvents, api.CardQuery{}); return err },
		"strays":      func() error { _, err := api.Call(l.ctx, c, api.ListStrays, api.None{}); return err },
		"snapshot":    func() error { _, err := api.Call(l.ctx, c, api.GetSnapshot, api.None{}); return err },
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
