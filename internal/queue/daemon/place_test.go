package daemon

import (
	"slices"
	"strings"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue/config"
)

// TestThePlaceOfAJob: what a job asks for comes before the config.
func TestThePlaceOfAJob(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		sentence string
		engine   job.Place
		pairs    []string
		to       job.Place
		gpus     int
		slurm    string
		note     string
		refused  string
	}{
		{sentence: "here by default", to: job.ToLocal, gpus: 1},
		{sentence: "as the config says", engine: job.ToSlurm, to: job.ToSlurm, gpus: 1},
		{sentence: "here, whatever the config says", engine: job.ToSlurm, pairs: []string{"to", "local"}, to: job.ToLocal, gpus: 1},
		{sentence: "with options for Slurm", pairs: []string{"to", "slurm", "slurm", "--account=lab -q long"}, to: job.ToSlurm, gpus: 1, slurm: "--account=lab -q long"},
		{sentence: "a script for Slurm that names no GPU", engine: job.ToSlurm, pairs: []string{"slurm_env", "yes", "slurm", "-p low"}, to: job.ToSlurm, slurm: "-p low"},
		{sentence: "a script for Slurm that names GPUs", pairs: []string{"to", "slurm", "slurm_env", "yes", "gpus", "2"}, to: job.ToSlurm, gpus: 2},
		{sentence: "a script for Slurm with a declaration", pairs: []string{"to", "slurm", "slurm_env", "yes", "vram", "1G"}, to: job.ToSlurm, gpus: 1},
		{sentence: "a script for Slurm here", pairs: []string{"slurm_env", "yes", "slurm", "-p low"}, to: job.ToLocal, gpus: 1, note: "slurm: ignored on this machine: -p low"},
		{sentence: "a script here that wants a whole node", pairs: []string{"slurm_env", "yes", "slurm", "-p low --exclusive=user"}, refused: "--exclusive changes what the job is"},
		{sentence: "with an option of berth", pairs: []string{"to", "slurm", "slurm", "--array=0-9"}, refused: "berth sets --array itself"},
		{sentence: "with what Slurm cannot do", pairs: []string{"to", "slurm", "ids", "1"}, refused: "Slurm chooses the GPUs of a job"},
		{sentence: "elsewhere", pairs: []string{"to", "moon"}, refused: "expected local or slurm"},
		{sentence: "here with options for Slurm", pairs: []string{"slurm", "-q long"}, refused: "the job runs on this machine"},
	} {
		l := newLab(t, with(func(c *config.Config) { c.Engine = row.engine }))
		reply, err := api.Call(l.ctx, l.Client, api.Submit, api.SubmitRequest{Jobs: []api.Spec{sh("true", append(row.pairs, "hold", "yes")...)}, Dir: "/"})
		if row.refused != "" {
			if err == nil || !strings.Contains(err.Error(), row.refused) {
				t.Errorf("%s: %v, want %q", row.sentence, err, row.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", row.sentence, err)
			continue
		}
		j, err := l.d.svc.queue.Store.Job(reply.Jobs[0].ID)
		if err != nil || j.Spec.To != row.to || j.Spec.GPUs != row.gpus || j.Spec.Slurm != row.slurm {
			t.Errorf("%s: %v %q, %d GPUs, %q", row.sentence, err, j.Spec.To, j.Spec.GPUs, j.Spec.Slurm)
		}
		if notes := reply.Jobs[0].Notes; row.note != "" && !slices.Contains(notes, row.note) {
			t.Errorf("%s: %q", row.sentence, notes)
		}
	}
}

// TestAnEditKeepsThePlace: the config may have changed since the job was submitted.
func TestAnEditKeepsThePlace(t *testing.T) {
	t.Parallel()
	l := newLab(t, with(func(c *config.Config) { c.Engine = job.ToSlurm }))
	id := l.one(sh("true", "hold", "yes", "to", "local"))
	for _, row := range []struct {
		set  []string
		want job.Place
	}{{[]string{"cpus", "1"}, job.ToLocal}, {[]string{"to", "slurm"}, job.ToSlurm}, {[]string{"name", "x"}, job.ToSlurm}, {[]string{"to", "local"}, job.ToLocal}} {
		_, err := api.Call(l.ctx, l.Client, api.EditJob, api.EditRequest{JobID: api.JobID{ID: id}, Set: editOf(row.set...)})
		if j, found := l.d.svc.queue.Store.Job(id); err != nil || found != nil || j.Spec.To != row.want {
			t.Errorf("%s: %v %q", row.set, err, j.Spec.To)
		}
	}
}
